"""Strategies side by side, and why n processes are not n times one, from figures that can be checked by hand."""

import itertools

import pytest

from search.record.trial import Trial
from search.report.scaling import efficiency, excess, nodes_used, scaling_tables, strategy_tables
from tests.search.runs import measurement
from trainables.contract import Verdict
from trainables.strategy_table import STRATEGIES

numbers = itertools.count(1)

ALONE = {"forward": 40, "backward": 80, "update": 10}  # 130 ms
TOGETHER = {"forward": 22, "backward": 44, "communicate": 20, "update": 10}  # 96 ms


def trial(rate=100.0, milliseconds=None, state="complete", metrics=(), bound_by="compute", **config):
    ends = {"images_per_second_low": rate - 1.0, "images_per_second_high": rate + 1.0}
    stages = {f"{stage}_seconds": ms / 1000 for stage, ms in (milliseconds or {}).items()}
    known = {"images_per_second": rate, **ends, **stages, **dict(metrics)} if state == "complete" else {}
    verdict = Verdict(bound_by, 0.5, "") if milliseconds else None
    reason = None if state == "complete" else "needs 4 GPUs, there is 1"
    curve = {1: measurement(known, 1)} if known else {}
    settings = {"batch_size": 128, **config}
    return Trial(f"t{next(numbers):04d}", settings, "train", 0.0, state, reason, curve=curve, verdict=verdict)


def flat(blocks):
    return " ".join(" ".join(blocks).split())


def rows_of(blocks):
    """The cells of each row of the first table."""
    table = next(block for block in blocks if block.startswith("| "))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


# ---- strategies


def strategies():
    return [
        trial(150, {**TOGETHER, "communicate": 20}, strategy="ddp", world_size=2, metrics={"memory_imbalance": 1.02}),
        trial(100, ALONE, strategy="single", metrics={"peak_memory_gib": 1.5}),
        trial(80, strategy="pipeline", world_size=2, schedule="gpipe", num_microbatches=4),
        trial(90, strategy="pipeline", world_size=2, schedule="1f1b", num_microbatches=4),
    ]


def test_strategies_are_compared_with_single_whatever_their_own_parameters_are():
    blocks = strategy_tables(strategies(), ["strategy"], STRATEGIES)
    heading, _, *rows = rows_of(blocks)
    column = {name: [row[i] for row in rows] for i, name in enumerate(heading)}
    assert column["strategy"] == ["single", "ddp x2", "pipeline x2", "pipeline x2"]
    assert column["images/s"] == ["100 ± 1", "150 ± 1", "90.0 ± 1", "80.0 ± 1"]
    text = flat(blocks)
    for cells in ("| 1.00x |", "| 1.50x |", "| 0.90x |", "| 0.80x |", "1f1b", "gpipe", "| 21% |"):
        assert cells in text
    assert column["settings"] == ["", "", "1f1b", "gpipe"]  # num_microbatches is the same for all that have it
    assert "Fastest: ddp on 2 processes, 1.50 (1.48 to 1.52) times the rate of single." in text


def test_the_ratio_of_two_strategies_has_an_interval():
    text = flat(
        strategy_tables([trial(100, strategy="single"), trial(101, strategy="ddp", world_size=2)], [], STRATEGIES)
    )
    assert "ddp on 2 processes and single cannot be told apart: 1.01 (1.00 to 1.02)." in text


def test_a_strategy_that_did_not_run_says_why():
    trials = [*strategies(), trial(state="infeasible", strategy="fsdp", world_size=4)]
    assert "fsdp on 4 processes did not run: needs 4 GPUs, there is 1" in flat(strategy_tables(trials, [], STRATEGIES))


def test_trials_of_other_work_are_no_comparison_and_where_no_strategy_varies_nothing_is_said():
    ddp = trial(150, strategy="ddp", world_size=2)
    assert strategy_tables([ddp, trial(100, strategy="single", batch_size=64)], [], STRATEGIES) == []
    assert strategy_tables([ddp, trial(100, strategy="ddp", world_size=1)], [], STRATEGIES) == []
    assert strategy_tables([trial(100), trial(100, width=0.5)], [], STRATEGIES) == []


# ---- scaling


def test_efficiency_is_the_rate_over_n_times_the_rate_of_one():
    assert efficiency(350, 4, 100) == pytest.approx(0.875)


def test_what_a_step_takes_too_long_by_stage_adds_up_to_all_of_it():
    by_stage = excess(TOGETHER, 2, ALONE)
    assert by_stage == {"forward": 2, "backward": 4, "communicate": 20, "update": 5}
    assert sum(by_stage.values()) == 96 - 130 / 2


def scaled(**one):
    ddp = {"strategy": "ddp", "threads": 1}
    metrics = {"utilization_imbalance": 1.25}
    alone = trial(984, ALONE, world_size=1, **{**ddp, **one})
    return [trial(1333, TOGETHER, world_size=2, metrics=metrics, bound_by="communication", **ddp), alone]


def test_the_cause_is_told_in_words_largest_first():
    blocks = scaling_tables(scaled(), ["world_size"], cores=2, gpus=0, strategies=STRATEGIES)
    heading, _, *rows = rows_of(blocks)
    assert heading[:5] == ["processes", "images/s", "times one", "efficiency", "comm."]
    assert [row[:5] for row in rows] == [
        ["1", "984 ± 1", "1.00x", "100%", "0%"],
        ["2", "1,333 ± 1", "1.35x", "68%", "21%"],
    ]
    text = flat(blocks)
    assert "Strategy `ddp`:" in text
    assert "A step takes 96.0 ms; half of the step of one process would be 65.0 ms." in text
    assert "65% of the difference is communication: 21% of each step waits for other processes; 16% of" in text
    assert "13% of the difference is backward, 1.10 times as long per sample: each process has 64 of 128" in text
    assert "forward" not in text  # 6% of it is not worth a word
    assert "The busiest is 1.25 times as busy as the mean" in text
    assert "They share" not in text  # each has a core
    assert all(len(line) <= 80 for block in blocks for line in block.splitlines())


def test_what_may_be_no_loss_has_no_cause():
    trials = scaled()
    for one in trials:
        one.curve[1].metrics.update(images_per_second_low=0.7 * one.rate, images_per_second_high=1.3 * one.rate)
    text = flat(scaling_tables(trials, ["world_size"], cores=2, gpus=0, strategies=STRATEGIES))
    assert "2 processes: efficiency 68%. That is not surely a loss" in text
    assert "communication:" not in text


def test_where_processes_share_cores_that_is_said_first():
    trials = scaled()
    for t in trials:
        del t.config["threads"]
    assert "They share the cores: each has 1 thread, one alone had 2." in flat(
        scaling_tables(trials, [], 2, 0, strategies=STRATEGIES)
    )
    assert "They share" not in flat(scaling_tables(trials, [], 2, gpus=2, strategies=STRATEGIES))


def test_single_stands_in_where_the_strategy_never_ran_alone():
    trials = [
        trial(100, ALONE, strategy="single"),
        trial(199, TOGETHER, strategy="parameter_server", server="synchronous", world_size=2),
        trial(200, strategy="parameter_server", server="synchronous", world_size=4),
    ]
    text = flat(scaling_tables(trials, [], 8, 4, strategies=STRATEGIES))
    assert "Strategy `parameter_server`; the reference of one process is `single`:" in text
    assert "- 2 processes: efficiency 100%. Nothing to explain." in text
    assert "- 4 processes: efficiency 50%. Its stages were not measured." in text


@pytest.mark.parametrize("strategies", [{}, STRATEGIES])
def test_a_training_without_strategies_has_processes(strategies):
    trials = [trial(100, ALONE), trial(150, TOGETHER, world_size=2)]
    trials[0].config["world_size"] = 1
    text = flat(scaling_tables(trials, [], 8, 4, strategies=strategies))
    assert text.startswith("Processes of the training:")
    assert "1.50x" in text


def test_where_the_number_of_processes_does_not_vary_nothing_is_said():
    one, two = trial(100, ALONE, strategy="single"), trial(150, TOGETHER, strategy="ddp", world_size=2)
    assert scaling_tables([one, two], [], 2, 0, strategies=STRATEGIES) == []
    assert scaling_tables([one], [], 2, 0, strategies=STRATEGIES) == []
    assert (
        scaling_tables([two, trial(300, strategy="ddp", world_size=4)], [], 2, 0, strategies=STRATEGIES) == []
    )  # nothing to refer to


# ---- nodes


def test_the_nodes_that_trials_were_on_are_told_by_placement():
    trials = [
        trial(metrics={"nodes": 1.0}, placement="pack"),
        trial(metrics={"nodes": 2.0}, placement="spread"),
        trial(metrics={"nodes": 1.0}),
    ]
    assert nodes_used(trials, 2) == "2 in the cluster; placement pack: trials on 1; placement spread: trials on 2"
    assert nodes_used(trials, 1) == ""
