"""What of an earlier run counts for a new one."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from search.front.roles import is_interval_end
from search.record import warm_start
from search.space.parsing import parse_space
from tests.search.runs import INFO, story, typed

SPACE = {
    "trainable": "vgg19_cifar10",
    "evaluation": "decoupled",
    "objectives": INFO["objectives"],
    "constraints": INFO["constraints"],
    "parameters": INFO["space"]["parameters"],
    "fixed": INFO["space"]["fixed"],
    "budget": {"trials": 16, "epochs": 3},
}
ALL = {"val_accuracy", "images_per_second", "peak_memory_fraction"}


def run_of(folder, name, events):
    (folder / name).mkdir()
    (folder / name / "journal.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder / name


def opening(**changed):
    return typed([{"event": "run", **INFO, **changed}])[0]


def sources(measurements, kind="metrics"):
    """Which metrics count of which trial; `kind`: `metrics` or `elsewhere`."""
    found = {known["source"].split()[1]: known[kind] for known in measurements if known[kind]}
    return {trial: {name for name in metrics if not is_interval_end(name, metrics)} for trial, metrics in found.items()}


@pytest.fixture
def folder(tmp_path):
    return run_of(tmp_path, "before", story())


def test_of_the_same_machine_complete_trials_count_whole_and_stopped_ones_by_what_a_probe_measures(folder):
    found = sources(warm_start.all_measurements(parse_space(SPACE), opening(), [folder]))
    assert found["t0001"] == ALL
    assert found["t0004"] == {"images_per_second"}
    assert not {"t0002", "t0005", "t0008"} & found.keys()  # infeasible and failed ones


@pytest.mark.parametrize("kind", ["metrics", "elsewhere"])
def test_a_known_rate_has_the_interval_that_it_was_measured_with(tmp_path, kind):
    events = story()
    for event in events:
        if event["event"] == "measurement" and event["trial_id"] == "t0001":
            event["metrics"] |= {"images_per_second_low": 400.0, "images_per_second_high": 1600.0}
    folder = run_of(tmp_path, "before", events)
    here = opening(commit="another") if kind == "elsewhere" else opening()
    known = next(k for k in warm_start.all_measurements(parse_space(SPACE), here, [folder]) if "t0001" in k["source"])
    assert (known[kind]["images_per_second_low"], known[kind]["images_per_second_high"]) == (400.0, 1600.0)


def test_the_configuration_is_what_the_new_space_would_choose(folder):
    known = warm_start.all_measurements(parse_space(SPACE), opening(), [folder])[0]
    assert known["source"] == "before t0001"
    assert known["config"] == {
        "batch_size": 64,
        "learning_rate": 0.0478623,
        "loader": "workers",
        "num_workers": 0,
        "strategy": "single",
        "precision": "bf16",
    }


def test_a_run_that_is_named_counts_once(folder):
    assert not warm_start.recent_rates(parse_space(SPACE), opening(), folder.parent, other_than=[folder])
    once, twice = (warm_start.all_measurements(parse_space(SPACE), opening(), [folder] * n) for n in (1, 2))
    assert once == twice


def test_runs_of_the_same_name_in_two_folders_both_count(folder, tmp_path):
    (tmp_path / "other").mkdir()
    again = run_of(tmp_path / "other", "before", story())
    found = warm_start.all_measurements(parse_space(SPACE), opening(), [folder, again])
    runs = {measurement["source"].rpartition(" ")[0] for measurement in found}
    assert runs == {f"{tmp_path.name}/before", "other/before"}
    assert len(found) == 2 * len(warm_start.all_measurements(parse_space(SPACE), opening(), [folder]))


def test_a_rate_is_that_of_a_share_of_the_machine(folder):
    two_at_a_time = opening(space={**INFO["space"], "concurrent_trials": 2})
    assert not warm_start.recent_rates(parse_space(SPACE), two_at_a_time, folder.parent)


def test_of_another_machine_only_what_takes_training_counts(folder):
    elsewhere = opening(machine={**INFO["machine"], "cores": 64})
    found = sources(warm_start.all_measurements(parse_space(SPACE), elsewhere, [folder]))
    assert found["t0001"] == {"val_accuracy"}
    assert "t0004" not in found
    there = sources(warm_start.all_measurements(parse_space(SPACE), elsewhere, [folder]), "elsewhere")
    assert there["t0001"] == there["t0004"] | {"peak_memory_fraction"} == {"images_per_second", "peak_memory_fraction"}
    assert not warm_start.recent_rates(parse_space(SPACE), elsewhere, folder.parent)


def test_rates_are_taken_without_asking_and_nothing_else(folder):
    found = sources(warm_start.recent_rates(parse_space(SPACE), opening(), folder.parent))
    assert found["t0001"] == {"images_per_second", "peak_memory_fraction"}
    assert not warm_start.recent_rates(parse_space({**SPACE, "evaluation": "coupled"}), opening(), folder.parent)


OTHER_RELEASE = {"versions": {**INFO["versions"], "training-search": "9.9"}}


@pytest.mark.parametrize("changed", [{"commit": "fff9999"}, {"versions": {"torch": "3.0"}}, OTHER_RELEASE])
def test_rates_are_only_those_of_the_same_versions(folder, changed):
    assert not warm_start.recent_rates(parse_space(SPACE), opening(**changed), folder.parent)


@pytest.mark.parametrize("commit", ["abc1234-dirty", None])
def test_of_a_commit_that_says_nothing_no_rate_is_taken(tmp_path, commit):
    run_of(tmp_path, "before", story(commit=commit))
    assert not warm_start.recent_rates(parse_space(SPACE), opening(commit=commit), tmp_path)


@pytest.mark.parametrize("changed", [{"momentum": 0.8}, {"width": 0.5}])
def test_what_was_measured_with_other_fixed_settings_counts_as_elsewhere(folder, changed):
    space = parse_space({**SPACE, "fixed": {**SPACE["fixed"], **changed}})
    found = warm_start.all_measurements(space, opening(), [folder])
    assert not sources(found)
    assert sources(found, "elsewhere")["t0001"] == ALL
    assert not warm_start.recent_rates(space, opening(), folder.parent)


def test_what_was_measured_with_another_default_counts_as_elsewhere(tmp_path):
    run = run_of(tmp_path, "of_another_version", story(defaults={"crop_padding": 4}))
    found = warm_start.all_measurements(parse_space(SPACE), opening(), [run])
    assert not sources(found)
    assert sources(found, "elsewhere")["t0001"] == ALL


def test_what_is_not_of_the_new_space_does_not_count(folder):
    other = parse_space({**SPACE, "parameters": {**SPACE["parameters"], "batch_size": {"values": [8, 16]}}})
    assert not warm_start.all_measurements(other, opening(), [folder])


def test_what_was_measured_on_other_data_counts_as_elsewhere(folder):
    other = opening(data={"name": "generated", "description": "generated"})
    found = warm_start.all_measurements(parse_space(SPACE), other, [folder])
    assert not sources(found)
    assert sources(found, "elsewhere")["t0001"] == ALL
    assert not warm_start.recent_rates(parse_space(SPACE), other, folder.parent)


def test_another_training_says_nothing(folder):
    assert not warm_start.all_measurements(parse_space(SPACE), opening(trainable="image_folder"), [folder])


def test_accuracies_of_another_length_do_not_count(folder):
    longer = parse_space({**SPACE, "budget": {"trials": 16, "epochs": 12}})
    found = warm_start.all_measurements(longer, opening(), [folder])
    assert sources(found)["t0001"] == ALL - {"val_accuracy"}
    assert sources(found, "elsewhere")["t0001"] == {"val_accuracy"}


def test_what_was_fixed_may_be_searched_now_and_the_other_way_round(folder):
    space = parse_space(
        {
            **SPACE,
            "parameters": {"momentum": {"values": [0.8, 0.9]}, "batch_size": {"values": [64, 512]}},
            "fixed": {
                "optimizer": "sgd",
                "pin_memory": False,
                "learning_rate": 0.02,
                "loader": "memory",
                "strategy": "single",
                "precision": "fp32",
            },
        }
    )
    (known,) = (known for known in warm_start.all_measurements(space, opening(), [folder]) if known["metrics"])
    assert (known["source"], known["config"]) == ("before t0003", {"momentum": 0.9, "batch_size": 64})


def test_what_is_no_journal_is_passed_over_unless_it_was_asked_for(folder):
    (folder.parent / "torn").mkdir()
    (folder.parent / "torn" / "journal.jsonl").write_text("{")
    assert warm_start.recent_rates(parse_space(SPACE), opening(), folder.parent)
    with pytest.raises(ValueError, match="torn"):
        warm_start.all_measurements(parse_space(SPACE), opening(), [folder.parent / "torn"])


def test_a_run_that_is_removed_meanwhile_is_passed_over(folder):
    removed = folder.parent / "removed" / "journal.jsonl"
    results: Any = SimpleNamespace(glob=lambda pattern: [removed, *folder.parent.glob(pattern)])
    assert warm_start.recent_rates(parse_space(SPACE), opening(), results)


def test_the_time_to_a_target_is_that_of_its_machine(tmp_path):
    target = {"time_to": {"val_accuracy": 0.5}}
    searched = parse_space({**SPACE, "evaluation": "coupled", "objectives": [target, SPACE["objectives"][1]]})
    name, best = searched.targets[0][0].name, searched.targets[0][0].best
    events = story()
    for event in events:
        if event["event"] == "measurement" and event["trial_id"] == "t0001":
            event["metrics"] |= {name: 15.0, best: 0.52}
    folder = run_of(tmp_path, "before", events)
    elsewhere = opening(machine={**INFO["machine"], "cores": 64})
    for here, kind in ((opening(), "metrics"), (elsewhere, "elsewhere")):
        known = warm_start.all_measurements(searched, here, [folder])
        assert next(k for k in known if "t0001" in k["source"])[kind][name] == 15.0
