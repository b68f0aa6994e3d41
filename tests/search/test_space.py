import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from search.front.affects import without_effect
from search.front.objective import Constraint, Objective
from search.record.run_state import RunState
from search.space.budget import Budget, SearcherSettings, StoppingSettings
from search.space.parameters import Choice, Range
from search.space.parsing import load_space, parse_space
from search.space.restriction import for_machine
from search.space.space import Space
from search.space.validation import Source, SpaceError
from search.study.resumed import check_same_space
from tests.search.bad_spaces import BAD_SPACES, GOOD, Bad
from tests.search.runs import story, typed
from trainables.contract import Data, Resources
from trainables.machine import processor
from trainables.setting_check import did_you_mean

SPACES = Path(__file__).parents[2] / "spaces"
LAPTOP, GPU_NODE = Resources(cpus=2), Resources(cpus=32, gpus=4)

OBJECTIVES = [{"metric": "error", "goal": "minimize"}, {"metric": "speed", "goal": "maximize"}]


def space(**sections):
    """A space of any names, as the Advisor is driven on foreign problems."""
    return parse_space({"objectives": OBJECTIVES, "budget": {"trials": 8}, **sections})


def written(folder, text):
    path = folder / "a.yaml"
    path.write_text(text)
    return path


# ---- good files


def test_a_space_file_is_read_as_it_says(tmp_path):
    path = written(
        tmp_path,
        """\
trainable: vgg19_cifar10
objectives:
  - {metric: val_accuracy, goal: maximize}
  - {metric: images_per_second, goal: maximize}
constraints: ["peak_memory_fraction <= 0.9", val_loss >= -1]
parameters:
  learning_rate: {min: 1e-5, max: 0.5, log: true}
  num_workers: {values: [0, 2], when: {loader: workers}}
  loader: {values: [workers, memory]}
fixed: {optimizer: sgd, momentum: 0.9, pin_memory: false}
data: {name: folder, root: /pictures, train_images: 100, val_images: 50}
searcher: {name: nsga2, seed: 3}
stopping: {name: forecast}
budget: {trials: 64, epochs: 12, hours: 1}
concurrent_trials: 2
""",
    )
    assert load_space(path) == Space(
        trainable="vgg19_cifar10",
        objectives=(Objective("val_accuracy", "maximize"), Objective("images_per_second", "maximize")),
        constraints=(Constraint("peak_memory_fraction", "<=", 0.9), Constraint("val_loss", ">=", -1.0)),
        parameters={
            "learning_rate": Range(min=0.00001, max=0.5, log=True),
            "loader": Choice(values=("workers", "memory")),
            "num_workers": Choice(values=(0, 2), when={"loader": ("workers",)}),
        },
        fixed={"optimizer": "sgd", "momentum": 0.9, "pin_memory": False},
        data=Data(name="folder", root="/pictures", train_images=100, val_images=50),
        searcher=SearcherSettings(name="nsga2", seed=3),
        stopping=StoppingSettings(name="forecast"),
        budget=Budget(trials=64, epochs=12, hours=1.0),
        concurrent_trials=2,
    )


def test_what_a_file_does_not_say_is_plain():
    plain = space(parameters={"x": {"min": 0, "max": 1}})
    assert plain.searcher == SearcherSettings(name="gp", seed=0)
    assert (plain.stopping.name, plain.stopping_rule, plain.evaluation) == ("auto", "none", "coupled")
    assert plain.budget.epochs == 1
    assert plain.data == Data()
    assert plain.concurrent_trials == 1


def test_a_range_has_numbers_alone_and_of_whole_ones_no_others():
    assert Range(min=0.0, max=2.0).contains(1)
    assert Range(min=0, max=2, type="int").contains(1)
    assert not Range(min=0.0, max=2.0).contains(True)
    assert not Range(min=0, max=2, type="int").contains(1.5)


def test_without_a_trainable_any_names_go():
    foreign = space(parameters={"x": {"min": 1, "max": 9, "type": "int"}}, fixed={"y": "z"}, constraints=["cost <= 1"])
    assert foreign.parameters == {"x": Range(min=1, max=9, type="int")}


def test_a_range_over_what_the_trainable_counts_is_over_whole_numbers(tmp_path):
    ranges = "parameters: {batch_size: {min: 32, max: 512, log: true}, momentum: {min: 0, max: 0.9}}\n"
    parameters = load_space(written(tmp_path, "".join([*list(GOOD.values())[:3], ranges]))).parameters
    assert parameters["batch_size"] == Range(min=32, max=512, log=True, type="int")
    assert parameters["momentum"] == Range(min=0, max=0.9, type="float")


def test_what_is_written_once_and_referred_to_is_as_if_written_out(tmp_path):
    anchors = """\
without_gpu: {fixed: &settings {pin_memory: &no false, momentum: 0.5}}
fixed:
  <<: *settings
  momentum: 0.9
data: {download: *no}
"""
    fixed = load_space(written(tmp_path, "".join(GOOD.values()) + anchors)).fixed
    assert fixed == {"pin_memory": False, "momentum": 0.9}
    assert fixed["pin_memory"] is False


@pytest.mark.parametrize("path", sorted(SPACES.glob("*.yaml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("resources", [LAPTOP, GPU_NODE], ids=["laptop", "GPU node"])
@pytest.mark.parametrize("bf16", ["computed", "emulated"])
def test_our_own_space_files_run_on_a_laptop_and_on_a_gpu_node(path, resources, bf16, monkeypatch):
    monkeypatch.setattr(processor, "bf16", lambda: bf16)
    usable, _ = for_machine(load_space(path), resources)
    assert usable.parameters


def test_reading_a_space_needs_neither_torch_nor_ray():
    code = "import sys, search.space.parsing; assert not {'torch', 'ray', 'optuna', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=SPACES.parent)


# ---- bad files


@pytest.mark.parametrize("bad", BAD_SPACES, ids=lambda bad: bad.name)
def test_a_bad_file_is_refused_in_one_line_that_names_the_place(bad: Bad, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(bad.text)
    with pytest.raises(SpaceError) as refusal:
        load_space(Path("a.yaml"))
    message = str(refusal.value)
    place = f"a.yaml:{bad.line}: " + (f"{bad.key}: " if bad.key else "")
    assert message.startswith(place)
    assert bad.message in message
    assert len(message.splitlines()) == 1
    assert os.listdir() == ["a.yaml"]  # nothing was created


def test_all_problems_of_a_file_are_told_at_once_a_line_for_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parameters = """\
parameters:
  batch_size: {vlaues: [64]}
  lrr: {min: 0.1, max: 0.2}
  precision: {values: [fp32, bf61]}
fixed: {momentun: 0.9, optimizer: adam}
"""
    stated = [text for name, text in GOOD.items() if name != "parameters"]
    Path("a.yaml").write_text("".join([*stated, parameters, "stoping: {name: none}\n"]))
    with pytest.raises(SpaceError) as refusal:
        load_space(Path("a.yaml"), ["budget.trails=3"])
    told = [line.partition("; ")[0] for line in str(refusal.value).splitlines()]
    assert told == [
        '--set budget.trails=3: budget.trails: unknown key "trails"',
        'a.yaml:7: parameters.batch_size.vlaues: unknown key "vlaues"',
        'a.yaml:8: parameters.lrr: vgg19_cifar10 has no "lrr"',
        'a.yaml:9: parameters.precision.values[1]: found "bf61"',
        'a.yaml:10: fixed.momentun: vgg19_cifar10 has no "momentun"',
        'a.yaml:10: fixed.optimizer: found "adam"',
        'a.yaml:11: stoping: unknown key "stoping"',
    ]


def test_problems_beyond_the_form_are_told_at_once_too(tmp_path):
    objectives = "objectives: [{metric: val_acuracy, goal: maximize}, {metric: val_los, goal: minimize}]\n"
    text = "".join({**GOOD, "objectives": objectives, "budget": "budget: {epochs: 2}\n"}.values())
    with pytest.raises(SpaceError) as refusal:
        load_space(written(tmp_path, text))
    assert [line.partition(": ")[2].partition(":")[0] for line in str(refusal.value).splitlines()] == [
        "objectives[0].metric",
        "objectives[1].metric",
        "budget",
    ]


def test_problems_beyond_the_form_are_told_beside_those_of_the_form_but_not_what_follows_from_these(tmp_path):
    text = """\
trainable: vgg19_cifar10
objectives: [{metric: val_accuracy, goal: maximise}, {metric: val_los, goal: minimize}]
parameters:
  batch_size: {vlaues: [64]}
  precision: {values: [fp32, bf16], when: {batch_size: 64}}
  momentum: {min: 0, max: 0.9, when: {optimizer: adam}}
  optimizer: {values: [sgd, adamw]}
constraints: [3, val_acuracy >= 0.5]
baseline: {precision: fp32}
budget: {hour: 1}
"""
    with pytest.raises(SpaceError) as refusal:
        load_space(written(tmp_path, text))
    assert [line.partition(": ")[2].partition(":")[0] for line in str(refusal.value).splitlines()] == [
        "objectives[0].goal",
        "objectives[1].metric",
        "parameters.batch_size.vlaues",
        "parameters.momentum.when.optimizer",
        "constraints[0]",
        "constraints[1]",
        "budget.hour",
    ]


def test_there_are_at_least_40_bad_files_of_different_names():
    assert len({bad.name for bad in BAD_SPACES}) == len(BAD_SPACES) >= 40


def test_what_bad_files_leave_to_the_good_one_is_good(tmp_path):
    load_space(written(tmp_path, "".join(GOOD.values())))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("quikstart.yaml", None, 'quikstart.yaml: no such file; did you mean "quickstart.yaml"?'),
        ("quickstart.yml", None, 'quickstart.yml: no such file; did you mean "quickstart.yaml"?'),
        ("throughpu", None, 'throughpu: no such file; did you mean "throughput"?'),
        ("nowhere/recip.yaml", None, 'nowhere/recip.yaml: no such file; did you mean "recipe"?'),
        ("folder.yaml", "a folder", "folder.yaml: cannot be read: Is a directory"),
        ("latin.yaml", b"data:\n  root: caf\xe9\n", "latin.yaml:2: not UTF-8 text; save it as UTF-8"),
    ],
)
def test_an_unreadable_file_is_refused(name, content, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for there in ("quickstart.yaml", ".throughput.yaml"):
        Path(there).touch()
    if content == "a folder":
        Path(name).mkdir()
    elif content is not None:
        Path(name).write_bytes(content)
    with pytest.raises(SpaceError) as refusal:
        load_space(Path(name))
    assert str(refusal.value) == message


def test_plain_data_is_checked_the_same_and_named_by_its_origin():
    mapping = {"objectives": OBJECTIVES, "budget": {"trials": 8}, "parameters": {"x": {"values": []}}}
    with pytest.raises(SpaceError) as refusal:
        parse_space(mapping, Source("journal.jsonl"))
    assert str(refusal.value) == "journal.jsonl: parameters.x.values: an empty list; give at least one value"


# ---- overrides


@pytest.fixture
def good_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return written(Path("."), "".join(GOOD.values()))


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("budget.hours=0.25", lambda s: s.budget == Budget(trials=8, hours=0.25)),
        ("data.name=folder", lambda s: s.data.name == "folder"),
        ("data.root=/a/b=c", lambda s: s.data.root == "/a/b=c"),
        ("data={val_images: 7}", lambda s: s.data == Data(val_images=7)),
        ("parameters.batch_size.values=[1, 2]", lambda s: s.parameters["batch_size"].values == (1, 2)),
        ("parameters.seed={values: [1, 2]}", lambda s: list(s.parameters) == ["batch_size", "seed"]),
        ("constraints=[val_loss <= 3]", lambda s: s.constraints == (Constraint("val_loss", "<=", 3.0),)),
        ("fixed.learning_rate=1e-3", lambda s: s.fixed == {"learning_rate": 0.001}),
    ],
)
def test_an_override_replaces_or_adds_what_it_names(override, read, good_file):
    assert not read(load_space(good_file))
    assert read(load_space(good_file, [override]))


def test_metrics_of_earlier_versions_are_known_under_their_present_names(good_file):
    objectives = "objectives=[{metric: disturbed_windows, goal: minimize}, {metric: val_loss, goal: minimize}]"
    space = load_space(good_file, ["constraints=[disturbed <= 0]", objectives])
    assert (space.constraints[0].metric, space.objectives[0].metric) == ("contended", "contended_windows")


def test_overrides_hold_in_the_order_given(good_file):
    assert load_space(good_file, ["data.val_images=1", "data={}", "budget.trials=3", "budget.trials=4"]) == load_space(
        good_file, ["budget.trials=4"]
    )


def test_fixing_a_parameter_ends_the_search_over_it_and_the_other_way_round(good_file):
    seeds = "parameters.seed.values=[1, 2]"
    fixed = load_space(good_file, [seeds, "fixed.batch_size=32"])
    assert (list(fixed.parameters), fixed.fixed) == (["seed"], {"batch_size": 32})
    searched = load_space(good_file, ["fixed.batch_size=32", seeds, "parameters.batch_size.values=[1]"])
    assert (set(searched.parameters), searched.fixed) == ({"seed", "batch_size"}, {})


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.nme=x", 'data.nme: unknown key "nme"; did you mean "name"?'),
        ("dta.name=x", 'dta: unknown key "dta"; did you mean "data"?'),
        ("data.name=cifar", 'data.name: found "cifar"; did you mean "cifar10"?'),
        ("budget.trials=many", 'budget.trials: found "many"; expected a whole number'),
        ("parameters.batch_size.values=[64, 0]", "parameters.batch_size.values[1]: found 0; expected at least 1"),
        ("parameters.momentum.min=0", "parameters.momentum.max: missing; expected a number"),
        ("fixed.lr=0.1", 'fixed.lr: vgg19_cifar10 has no "lr"; did you mean "learning_rate"?'),
        ("budget.trials.most=3", "budget.trials is 8, without keys; set the whole value"),
        ("constraints=[val_loss <= 3", "constraints: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("budget.hours", "expected KEY=VALUE, as in --set budget.hours=0.5"),
        ("=3", "expected KEY=VALUE, as in --set budget.hours=0.5"),
        ("budget.=3", "expected KEY=VALUE, as in --set budget.hours=0.5"),
    ],
)
def test_a_bad_override_is_named_rather_than_a_line(override, message, good_file):
    with pytest.raises(SpaceError) as refusal:
        load_space(good_file, [override])
    assert str(refusal.value) == f"--set {override}: {message}"


def test_what_an_override_replaced_has_no_line_any_more(good_file):
    good_file.write_text(good_file.read_text().replace("{values: [64, 128]}", "{min: 64, max: 128}"))
    with pytest.raises(
        SpaceError, match=r"^--set parameters\.batch_size={min: 1}: parameters\.batch_size\.max: missing"
    ):
        load_space(good_file, ["parameters.batch_size={min: 1}"])


def test_an_override_of_a_misspelt_parameter_names_the_nearest(good_file):
    with pytest.raises(SpaceError) as refusal:
        load_space(good_file, ["parameters.learning_rat.min=3"])
    assert 'vgg19_cifar10 has no "learning_rat"; did you mean "learning_rate"?' in str(refusal.value)


def test_a_fault_that_no_override_made_keeps_its_line(good_file):
    good_file.write_text(good_file.read_text() + "searcher: {sed: 1}\n")
    with pytest.raises(SpaceError, match=r"^a\.yaml:7: searcher\.sed: unknown key"):
        load_space(good_file, ["budget.hours=1"])


# ---- conditions and grids


def test_a_parameter_comes_after_those_it_depends_on():
    chain = {"c": {"values": [1], "when": {"b": 1}}, "b": {"values": [1], "when": {"a": 1}}, "a": {"values": [1, 2]}}
    assert list(space(parameters=chain).parameters) == ["a", "b", "c"]


def test_a_parameter_is_active_while_its_condition_holds():
    conditional = space(
        parameters={
            "loader": {"values": ["workers", "memory", "device"]},
            "num_workers": {"values": [0, 2], "when": {"loader": ["workers", "device"], "strategy": "ddp"}},
        },
        fixed={"strategy": "ddp"},
    )
    active = {name: conditional.active("num_workers", {"loader": name}) for name in ("workers", "memory", "device")}
    assert active == {"workers": True, "memory": False, "device": True}
    assert not conditional.active("num_workers", {})
    assert conditional.active("loader", {})


def test_a_grid_has_every_configuration_once():
    grid = space(
        parameters={
            "loader": {"values": ["workers", "memory"]},
            "num_workers": {"values": [0, 2], "when": {"loader": "workers"}},
            "pin": {"values": [True, False], "when": {"num_workers": 2}},
        }
    ).grid()
    assert grid == [
        {"loader": "workers", "num_workers": 0},
        {"loader": "workers", "num_workers": 2, "pin": True},
        {"loader": "workers", "num_workers": 2, "pin": False},
        {"loader": "memory"},
    ]


@settings(deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_a_grid_without_conditions_is_the_product(counts):
    product = space(parameters={f"p{i}": {"values": list(range(n))} for i, n in enumerate(counts)})
    expected = [{f"p{i}": v for i, v in enumerate(point)} for point in itertools.product(*map(range, counts))]
    assert product.grid() == expected


def test_a_range_has_no_grid():
    with pytest.raises(SpaceError, match=r"parameters\.x: a grid needs values"):
        space(parameters={"x": {"min": 0, "max": 1}}).grid()


def test_a_grid_ends_by_itself_and_needs_no_budget():
    assert parse_space(
        {"objectives": OBJECTIVES, "parameters": {"x": {"values": [1, 2]}}, "searcher": {"name": "grid"}}
    ).grid() == [{"x": 1}, {"x": 2}]


# ---- restriction to a machine

VGG = {
    "trainable": "vgg19_cifar10",
    "objectives": [{"metric": "val_accuracy", "goal": "maximize"}, {"metric": "val_loss", "goal": "minimize"}],
    "budget": {"trials": 8},
}


def test_what_is_likely_and_when_name_no_value_that_is_left_out(tmp_path):
    space = parse_space(
        {
            **VGG,
            "searcher": {"name": "gp"},
            "parameters": {
                "loader": {"values": ["memory", "device", "workers"], "likely": ["device", "workers"]},
                "num_workers": {"values": [1, 2], "when": {"loader": ["device", "workers"]}},
            },
        }
    )
    here, left_out = for_machine(space, LAPTOP)
    assert parse_space(here.to_mapping()) == here  # as a resume does
    assert here.parameters["loader"].likely == ("workers",)
    assert here.parameters["num_workers"].when == {"loader": ("workers",)}
    now = here.to_mapping()
    before = {**now, "parameters": json.loads(json.dumps(now["parameters"]))}  # by an earlier version
    before["parameters"]["loader"]["likely"] = ["device", "workers"]
    for recorded in (now, before):
        info = RunState(typed(story(space=recorded, left_out=left_out)[:1])).info
        check_same_space(tmp_path, info, space)


def test_the_number_of_trials_at_a_time_is_that_of_a_machine_without_a_gpu():
    changed = {"concurrent_trials": 8, "without_gpu": {"concurrent_trials": 1}}
    space = parse_space({**VGG, "parameters": {"learning_rate": {"min": 0.1, "max": 0.2}}, **changed})
    here, lines = for_machine(space, LAPTOP)
    assert here.concurrent_trials == 1
    assert lines == ["no GPU here: without_gpu sets concurrent_trials"]


def test_unavailable_values_are_left_out_with_a_line_each(monkeypatch):
    monkeypatch.setattr(processor, "bf16", lambda: "computed")
    everywhere = parse_space(
        {
            **VGG,
            "parameters": {
                "precision": {"values": ["fp32", "fp16", "bf16"]},
                "loader": {"values": ["memory", "device"]},
                "num_workers": {"values": [0, 2], "when": {"loader": "memory"}},
                "pin_memory": {"values": [False, True], "when": {"loader": "device"}},
                "seed": {"values": [1, 2], "when": {"pin_memory": [False, True]}},
                "learning_rate": {"min": 0.1, "max": 0.2},
            },
        }
    )
    here, left_out = for_machine(everywhere, LAPTOP)
    assert left_out == [
        "precision fp16: needs a CUDA device",
        "loader device: needs a CUDA device",
        'pin_memory: left out, as loader is never "device" here',
        "seed: left out, as pin_memory is never false or true here",
    ]
    assert list(here.parameters) == ["precision", "loader", "learning_rate", "num_workers"]
    assert here.parameters["precision"] == Choice(values=("fp32", "bf16"))
    there, left_out = for_machine(everywhere, GPU_NODE)
    assert left_out == ["precision fp16: bf16 is native on these GPUs, and needs no scaling"]
    assert there.parameters["precision"] == Choice(values=("fp32", "bf16"))


@pytest.mark.parametrize(("native", "values"), [(True, ("fp32", "bf16")), (False, ("fp32", "fp16"))])
def test_of_the_16_bit_types_a_gpu_is_searched_over_the_one_that_suits_it(native, values, monkeypatch):
    monkeypatch.setattr(processor, "gpu_bf16", lambda: native)
    usable, _ = for_machine(load_space(SPACES / "throughput.yaml"), GPU_NODE)
    assert usable.parameters["precision"] == Choice(values=values)


def test_fp16_that_is_fixed_alone_or_in_use_is_kept():
    precision = {"precision": {"values": ["bf16", "fp16"]}}
    assert (
        for_machine(parse_space({**VGG, "parameters": precision, "baseline": {"precision": "fp16"}}), GPU_NODE)[1] == []
    )
    others = {"parameters": {"seed": {"values": [1, 2]}}, "fixed": {"precision": "fp16"}}
    assert for_machine(parse_space({**VGG, **others}), GPU_NODE)[1] == []


def test_graphs_and_compilation_are_searched_where_there_is_a_gpu():
    space = load_space(SPACES / "throughput.yaml")
    searched = {"cuda_graphs", "compile"}
    assert searched <= set(for_machine(space, GPU_NODE)[0].parameters)
    assert not searched & set(for_machine(space, LAPTOP)[0].parameters)


@pytest.mark.parametrize("value", ["auto", True, False])
def test_a_setting_that_was_true_or_false_may_be_auto_too(value):
    space = parse_space({**VGG, "parameters": {"seed": {"values": [1, 2]}}, "fixed": {"cuda_graphs": value}})
    assert space.fixed["cuda_graphs"] is value
    with pytest.raises(SpaceError, match="expected auto, true, false"):
        parse_space({**VGG, "parameters": {"seed": {"values": [1, 2]}}, "fixed": {"cuda_graphs": 1}})


def test_a_condition_on_a_fixed_value_that_does_not_hold_leaves_the_parameter_out():
    waiting = space(
        parameters={"n": {"values": [1, 2], "when": {"loader": "workers"}}, "x": {"values": [1, 2]}},
        fixed={"loader": "memory"},
    )
    here, left_out = for_machine(waiting, LAPTOP)
    assert (list(here.parameters), left_out) == (["x"], ['n: left out, as loader is never "workers" here'])


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"parameters": {"precision": {"values": ["fp16"]}}}, "none of its values is available here"),
        ({"budget": {"gpu_hours": 1.0}}, "budget.gpu_hours: no GPU here: nothing is counted; set trials, hours or"),
        ({"fixed": {"precision": "fp16"}}, 'fixed.precision: "fp16" is not available here: needs a CUDA device'),
    ],
)
def test_a_space_of_which_this_machine_can_do_nothing_is_refused(sections, message):
    with pytest.raises(SpaceError, match=message):
        for_machine(parse_space({**VGG, "parameters": {"seed": {"values": [1, 2]}}, **sections}), LAPTOP)


SMALLER = {
    **VGG,
    "parameters": {"batch_size": {"values": [64, 2048]}, "precision": {"values": ["fp32", "bf16"]}},
    "fixed": {"width": 1.0, "momentum": 0.9},
    "without_gpu": {
        "parameters": {"batch_size": {"min": 16, "max": 64}},
        "fixed": {"width": 0.25, "precision": "bf16"},
        "data": {"train_images": 100},
        "budget": {"trials": 8},
    },
}


def test_where_there_is_no_gpu_the_overlay_holds_and_says_what_it_changed(monkeypatch):
    monkeypatch.setattr(processor, "bf16", lambda: "computed")
    here, lines = for_machine(parse_space(SMALLER), LAPTOP)
    assert here.parameters == {"batch_size": Range(min=16, max=64, type="int")}
    assert here.fixed == {"width": 0.25, "momentum": 0.9, "precision": "bf16"}
    assert here.data == Data(train_images=100)
    assert here.without_gpu == {}
    changed = "parameters.batch_size, parameters.precision, fixed.width, data.train_images, fixed.precision"
    assert set(lines[0].removeprefix("no GPU here: without_gpu sets ").split(", ")) == set(changed.split(", "))
    assert len(lines) == 1


def test_where_there_is_a_gpu_the_overlay_is_nothing():
    here, lines = for_machine(parse_space(SMALLER), GPU_NODE)
    assert (here.parameters, here.fixed, lines) == (parse_space(SMALLER).parameters, SMALLER["fixed"], [])


def test_the_command_line_has_the_last_word_over_the_overlay(good_file):
    good_file.write_text(
        good_file.read_text() + "without_gpu:\n  data: {train_images: 10}\n"
        "  parameters: {batch_size: {values: [1, 2]}, seed: {values: [1, 2]}}\n"
    )
    overrides = ["data.train_images=99", "parameters.batch_size.values=[3]", "fixed.seed=5"]
    here, _ = for_machine(load_space(good_file, overrides), LAPTOP)
    assert here.data.train_images == 99
    assert here.parameters == {"batch_size": Choice(values=(3,))}
    assert here.fixed == {"seed": 5}


# ---- there and back

names = st.from_regex(r"[a-z_]{1,4}", fullmatch=True)
numbers = st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6)
scalars = numbers | st.text(max_size=4) | st.booleans()
choices = st.lists(scalars, min_size=1, max_size=4, unique=True).map(lambda values: {"values": values})
ranges = st.tuples(st.floats(1e-6, 1.0), st.floats(1.5, 1e6), st.booleans()).map(
    lambda r: {"min": r[0], "max": r[1], "log": r[2]}
)
whole_ranges = st.tuples(st.integers(1, 9), st.integers(10, 99)).map(
    lambda r: {"min": r[0], "max": r[1], "type": "int"}
)


@st.composite
def mappings(draw):
    parameters = draw(st.dictionaries(names, choices | ranges | whole_ranges, min_size=1, max_size=4))
    first, *others = parameters
    if others and "values" in parameters[first]:
        parameters[others[0]]["when"] = {first: draw(st.sampled_from(parameters[first]["values"]))}
    return {
        "objectives": OBJECTIVES,
        "constraints": draw(st.lists(numbers.map(lambda bound: f"cost <= {bound!r}"), max_size=2)),
        "parameters": parameters,
        "fixed": {f"{name}_fixed": value for name, value in draw(st.dictionaries(names, scalars, max_size=3)).items()},
        "searcher": {
            "name": draw(st.sampled_from(["tpe", "nsga2", "random"])),
            "seed": draw(st.integers(0, 2**32 - 1)),
        },
        "budget": {"trials": draw(st.integers(1, 99)), "hours": draw(st.none() | st.floats(1e-3, 1e3))},
        "without_gpu": {"budget": {"trials": draw(st.integers(1, 99))}},
    }


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(mappings())
def test_a_space_survives_the_journal(mapping):
    original = parse_space(mapping)
    assert parse_space(json.loads(json.dumps(original.to_mapping(), allow_nan=False))) == original


# ---- affected metrics, early stopping


def test_the_trainable_says_what_affects_what_and_the_file_has_the_last_word():
    searched = parse_space(
        {
            **VGG,
            "parameters": {
                "batch_size": {"values": [64, 128]},
                "learning_rate": {"min": 0.1, "max": 0.2},
                "loader": {"values": ["workers", "memory"]},
                "num_workers": {"values": [0, 2], "affects": "all"},
                "momentum": {"min": 0.5, "max": 0.9, "affects": "probed"},
            },
        }
    )
    assert searched.affecting("probed") == {"batch_size", "loader", "num_workers", "momentum"}
    assert searched.affecting("trained") == {"batch_size", "learning_rate", "num_workers"}


def test_the_old_name_of_affects_is_still_read():
    old = space(parameters={"x": {"values": [1, 2]}, "y": {"min": 0, "max": 1, "bears_on": "trained"}})
    assert old == space(parameters={"x": {"values": [1, 2]}, "y": {"min": 0, "max": 1, "affects": "trained"}})
    assert "bears_on" not in str(old.to_mapping())
    assert without_effect("replay", {"y": {"min": 0, "max": 1, "bears_on": "trained"}}, "images_per_second") == {"y"}


def test_without_a_trainable_each_parameter_affects_all_unless_said_otherwise():
    foreign = space(parameters={"x": {"values": [1, 2]}, "y": {"min": 0, "max": 1, "affects": "trained"}})
    assert foreign.affecting("probed") == {"x"}
    assert foreign.affecting("trained") == {"x", "y"}
    assert [foreign.is_probed(objective) for objective in foreign.objectives] == [False, False]


def test_the_trainable_says_what_a_probe_measures_and_the_file_has_the_last_word():
    metrics = [
        {"metric": "val_accuracy", "goal": "maximize"},
        {"metric": "images_per_second", "goal": "maximize"},
        {"metric": "peak_memory_gib", "goal": "minimize", "probed": False},
        {"metric": "val_loss", "goal": "minimize", "probed": True},
    ]
    searched = parse_space({**VGG, "objectives": metrics, "parameters": {"seed": {"values": [1, 2]}}})
    assert [searched.is_probed(objective) for objective in searched.objectives] == [False, True, False, True]


def test_what_there_is_bounds_a_trial_as_a_constraint_does():
    """Unless a constraint says so already."""
    free = parse_space({**VGG, "parameters": {"seed": {"values": [1, 2]}}})
    assert [str(bound) for bound in free.all_constraints] == ["peak_memory_fraction <= 1"]
    assert free.constraints == ()
    tight = parse_space({**free.to_mapping(), "constraints": ["peak_memory_fraction <= 0.9"]})
    assert tight.all_constraints == tight.constraints


def test_the_main_job_probes_how_fast_and_trains_how_well():
    """The batch size and the precision bear on both."""
    main = load_space(SPACES / "throughput.yaml")
    assert main.evaluation == "decoupled"
    assert {"learning_rate"} == main.affecting("trained") - main.affecting("probed")
    assert {"loader", "num_workers", "memory_format"} <= main.affecting("probed") - main.affecting("trained")
    assert {"batch_size", "precision"} <= main.affecting("probed") & main.affecting("trained")


@pytest.mark.parametrize(
    ("evaluation", "kind", "last_epoch"), [("coupled", "train", 12), ("decoupled", "train", 12), ("probe", "probe", 0)]
)
def test_only_where_nothing_trains_are_the_trials_probes(evaluation, kind, last_epoch):
    epochs = 1 if evaluation == "probe" else 12
    judged = space(parameters={"x": {"values": [1, 2]}}, evaluation=evaluation, budget={"trials": 8, "epochs": epochs})
    assert (judged.trial_kind, judged.last_epoch({"x": 1})) == (kind, last_epoch)


@pytest.mark.parametrize(
    ("epochs", "lengths"),
    [({"values": [8, 2, 4]}, (2, 8)), ({"min": 2, "max": 12, "type": "int", "log": True}, (2, 12))],
)
def test_the_length_of_a_trial_may_be_searched(epochs, lengths):
    searched = space(parameters={"epochs": epochs}, budget={"trials": 8, "epochs": 12})
    assert searched.lengths == lengths
    assert searched.last_epoch({"epochs": 4}) == 4
    assert space(parameters={"x": {"values": [1, 2]}}, budget={"trials": 8, "epochs": 12}).lengths == (12, 12)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"budget": {"trials": 8, "epochs": 6}},
            "parameters.epochs: found 8; budget.epochs, the most of one trial, is 6",
        ),
        ({"parameters": {"epochs": {"min": 1, "max": 8}}}, "parameters.epochs: expected whole numbers from 1 on"),
        ({"parameters": {"epochs": {"values": ["a", "b"]}}}, "parameters.epochs: expected whole numbers from 1 on"),
        ({"parameters": {"epochs": {"values": [0, 8]}}}, "parameters.epochs: expected whole numbers from 1 on"),
        ({"evaluation": "probe"}, "parameters.epochs: probes have no epochs; leave it out"),
    ],
)
def test_what_contradicts_a_search_for_the_length_is_refused(sections, message):
    with pytest.raises(SpaceError, match=message.replace(".", r"\.")):
        space(**{"parameters": {"epochs": {"values": [2, 8]}}, "budget": {"trials": 8, "epochs": 8}, **sections})


@pytest.mark.parametrize(
    ("searcher", "stopping", "budget", "stopping_rule"),
    [
        ("gp", "auto", {"trials": 8}, "none"),  # an epoch saved buys nothing
        ("gp", "auto", {"hours": 1}, "forecast"),
        ("gp", "auto", {"total_epochs": 8, "trials": 8}, "forecast"),
        ("tpe", "auto", {"hours": 1}, "forecast"),
        ("grid", "auto", {"hours": 1}, "none"),  # a table is to be complete
        ("gp", "none", {"hours": 1}, "none"),
        ("tpe", "forecast", {"trials": 8}, "forecast"),
    ],
)
def test_trials_are_stopped_by_forecast_where_that_buys_others(searcher, stopping, budget, stopping_rule):
    judged = space(
        parameters={"x": {"values": [1, 2]}}, searcher={"name": searcher}, stopping={"name": stopping}, budget=budget
    )
    assert judged.stopping_rule == stopping_rule


def test_forecasts_end_trials_of_different_lengths_only_where_the_file_says_so():
    lengths = {"parameters": {"epochs": {"values": [2, 8]}}, "budget": {"hours": 1, "epochs": 8}}
    assert space(**lengths).stopping_rule == "none"
    assert space(**lengths, stopping={"name": "forecast"}).stopping_rule == "forecast"


def test_probes_are_never_stopped():
    assert space(parameters={"x": {"values": [1, 2]}}, evaluation="probe", budget={"hours": 1}).stopping_rule == "none"


@pytest.mark.parametrize("evaluation", ["coupled", "decoupled"])
def test_what_affects_what_survives_the_journal_and_the_machine(evaluation):
    original = parse_space(
        {
            **VGG,
            "evaluation": evaluation,
            "objectives": [{"metric": m, "goal": "minimize", "probed": m == "x"} for m in ("x", "y")],
            "trainable": None,
            "parameters": {"p": {"values": [1, 2], "affects": "probed"}, "q": {"min": 0, "max": 1, "affects": "all"}},
            "searcher": {"name": "gp"},
            "stopping": {"name": "forecast"},
        }
    )
    assert parse_space(json.loads(json.dumps(original.to_mapping(), allow_nan=False))) == original
    assert for_machine(original, LAPTOP) == (original, [])


@pytest.mark.parametrize(
    ("word", "name"),
    [("Ddp", "ddp"), ("ring", "ring_allreduce"), ("data_paralel", "data_parallel"), ("DDP", "ddp")],
)
def test_a_name_in_other_letters_or_its_beginning_is_what_was_meant(word, name):
    names = ["single", "data_parallel", "ddp", "fsdp", "ring_allreduce", "parameter_server", "pipeline"]
    assert did_you_mean(word, names) == f'; did you mean "{name}"?'


def test_a_training_file_without_a_gpu_lies_beside_the_space_file_too(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    for name in ("small.py", "large.py"):
        (tmp_path / "sub" / name).write_text(TRAINING)
    (tmp_path / "sub" / "space.yaml").write_text(
        "trainable: large.py\nobjectives: [{metric: val_loss, goal: minimize}, "
        "{metric: samples_per_second, goal: maximize}]\nparameters: {batch_size: {values: [8, 16]}}\n"
        "budget: {trials: 2}\nwithout_gpu: {trainable: small.py}\n"
    )
    monkeypatch.chdir(tmp_path)
    here, _ = for_machine(load_space(Path("sub/space.yaml")), LAPTOP)
    assert here.trainable == str(tmp_path / "sub" / "small.py")


TRAINING = """
METRICS = {"val_loss": "nats"}
def network(): ...
def dataset(part, root): ...
def loss(outputs, targets): ...
def measures(outputs, targets): ...
"""


MAIN = {
    "trainable": "vgg19_cifar10",
    "objectives": [
        {"metric": "val_accuracy", "goal": "maximize"},
        {"metric": "images_per_second", "goal": "maximize"},
    ],
    "parameters": {"batch_size": {"values": [32, 64]}},
    "budget": {"trials": 8},
}


def test_a_mistake_of_the_section_without_a_gpu_is_told_as_such():
    with pytest.raises(SpaceError, match=r"with what without_gpu sets"):
        parse_space({**MAIN, "without_gpu": {"evaluation": "probe"}})


def test_a_space_of_which_nothing_is_left_here_is_refused():
    conditional = {"num_workers": {"values": [0, 1], "when": {"loader": "workers"}}}
    with pytest.raises(SpaceError, match="nothing is left to search here: num_workers: left out"):
        for_machine(parse_space({**MAIN, "parameters": conditional, "fixed": {"loader": "memory"}}), LAPTOP)


def test_configurations_are_counted_without_what_probes_tune():
    parameters = {"batch_size": {"values": [32, 64]}, "loader": {"values": ["memory", "workers"]}}
    coupled = parse_space({**MAIN, "parameters": parameters})
    decoupled = parse_space({**MAIN, "parameters": parameters, "evaluation": "decoupled"})
    ranged = parse_space({**MAIN, "parameters": {"learning_rate": {"min": 0.01, "max": 0.1}}})
    assert [each.num_configs for each in (coupled, decoupled, ranged)] == [4, 2, math.inf]
    assert coupled.model_copy(update={"parameters": {"batch_size": coupled.parameters["batch_size"]}}).num_configs == 2
