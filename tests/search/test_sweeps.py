import itertools
import math

import pytest

from search.front.differences import Estimate
from search.record.trial import Trial
from search.report.causes import where_time_goes
from search.report.sweeps import alike, batch_tables, loader_tables, saturation
from tests.search.runs import measurement
from trainables.contract import Verdict

numbers = itertools.count(1)
RATE = "images_per_second"


def trial(rate=100.0, half_width=1.0, state="complete", milliseconds=None, verdict=None, metrics=(), **config):
    ends = {"images_per_second_low": rate - half_width, "images_per_second_high": rate + half_width}
    stages = {f"{stage}_seconds": ms / 1000 for stage, ms in (milliseconds or {}).items()}
    measured = {"images_per_second": rate, **ends, **stages, **dict(metrics)} if state == "complete" else {}
    reason = None if state == "complete" else "needs 30 GiB, 22 GiB are there"
    curve = {0: measurement(measured, 0)} if measured else {}
    name = f"t{next(numbers):04d}"
    return Trial(name, config, "probe", 0.0, state, reason, curve=curve, verdict=verdict)


def flat(blocks):
    return " ".join(" ".join(blocks).split())


def input_bound(share=0.62):
    why = f"{share:.0%} of each step waits for data"
    return Verdict("input", share, why)


# ---- where the time goes


def test_shares_are_of_the_sum_of_the_stages():
    text = flat(
        where_time_goes([trial(milliseconds={"load": 30, "forward": 10, "backward": 40, "update": 20})], [], [])
    )
    for cells in ("30.0 | 10.0 | 40.0 | 20.0 | 100 |", "30% | 10% | 40% | 20% |"):
        assert cells in text
    assert "transfer" not in text  # no trial had any


def test_the_verdict_on_a_trial_of_the_front_is_told():
    waits, other = (trial(milliseconds={"load": 62, "forward": 38}, verdict=input_bound()) for _ in range(2))
    text = flat(where_time_goes([waits, other], front=[waits], varying=[]))
    assert "62% of each step waits for data." in text
    assert text.count("| input |") == 2
    assert text.count("62% of each step") == 1


def test_trials_that_no_other_table_tells_of_come_with_their_settings():
    trials = [trial(milliseconds={"forward": 1}, batch_size=size, precision="bf16") for size in (32, 64)]
    text = flat(where_time_goes(trials, [], ["batch_size"]))
    assert "batch=32" in text
    assert "bf16" not in text


def test_nothing_is_told_of_trials_that_were_not_profiled():
    assert where_time_goes([trial(), trial(milliseconds={"load": 0.0})], [], []) == []


# ---- which trials may be compared


def test_trials_are_compared_that_differ_in_one_setting_or_in_what_costs_no_time():
    small, large = trial(batch_size=32, learning_rate=0.1), trial(batch_size=64, learning_rate=0.2)
    other = trial(batch_size=64, precision="bf16")
    assert alike([small, large, other], ["batch_size"], {"learning_rate"}) == [[small, large]]


def test_of_trials_with_equal_settings_the_one_with_the_middle_rate_stands_for_all():
    same = [trial(rate, batch_size=32, seed=int(rate)) for rate in (90.0, 130.0, 100.0)]
    assert alike([*same, trial(batch_size=64)], ["batch_size"], {"seed"})[0][0] is same[2]


# ---- batch size


def of_sizes(*rates, half_width=1.0):
    return [trial(rate, half_width, batch_size=32 * 2**i) for i, rate in enumerate(rates)]


@pytest.mark.parametrize(
    ("rates", "half_width", "batch_size"),
    [
        ([100, 150, 190, 191, 190], 1.0, 128),  # what follows differs by no more than both may be off
        ([100, 150, 190, 191, 190], 0.1, 256),
        ([100, 150, 190, 170], 1.0, 128),  # slower after it
        ([100, 101, 101.9, 102.3], 1.0, 64),  # each no better than the one before, but than the first
        ([100, 90, 80], 1.0, 32),
        ([100, 150, 190], 1.0, None),  # still rising
        ([100, 150, 190, 194], math.nan, 64),  # without intervals a rate may be off by 15%
        ([100], 1.0, None),
    ],
)
def test_a_batch_is_saturated_when_no_larger_one_is_faster_beyond_doubt(rates, half_width, batch_size):
    found = saturation(of_sizes(*rates, half_width=half_width))
    assert (found and found.config["batch_size"]) == batch_size


def test_saturation_does_not_depend_on_the_order_of_the_trials():
    for order in itertools.permutations(of_sizes(100, 150, 151)):
        assert saturation(order).config["batch_size"] == 64


def test_rates_that_turns_have_measured_are_compared_by_turns():
    rates = of_sizes(100, 150, half_width=math.nan)
    assert "is not known: of the larger ones 64 is the fastest, at 1.50" in flat(batch_tables(rates, []))
    in_turns = flat(batch_tables(rates, [], ratio=lambda one, other: Estimate(math.log(1.4), 0.01)))
    assert "Not saturated: batch_size 64 is faster" in in_turns


def sweep(**more):
    rates = {32: 100.0, 64: 150.0, 128: 152.0}
    return [
        trial(rate, 2.0, batch_size=size, milliseconds={"forward": 9.6 * size, "update": 38.4}, **more)
        for size, rate in rates.items()
    ]


def test_a_rate_whose_interval_is_not_known_has_a_question_mark():
    table, _ = batch_tables([*sweep()[:2], trial(120.0, math.nan, batch_size=128)], [])
    assert "120 ± ?" in table


def test_the_batch_sizes_are_a_table_with_the_gain_of_each_over_the_one_before():
    table, words = batch_tables(sweep(metrics={"peak_memory_gib": 1.5, "gpu_utilization": 0.9}), [])
    assert [[c.strip() for c in line.split("|")[1:5]] for line in table.splitlines()[2:]] == [
        ["32", "100 ± 2", "", "1.50"],
        ["64", "150 ± 2", "1.50x", "1.50"],
        ["128", "152 ± 2", "1.01x", "1.50"],
    ]
    said = "Saturated at batch_size 64: of the larger ones 128 is the fastest, at 1.01 (0.99 to 1.03) times its rate."
    assert said in flat([words])
    slower = [*sweep()[:2], trial(120.0, 2.0, batch_size=128)]
    assert "128 is the fastest, at 0.80 (0.78 to 0.82) times its rate. Why" in flat(batch_tables(slower, []))


def test_why_a_larger_batch_does_not_pay_is_what_a_picture_costs():
    text = flat(batch_tables(sweep(metrics={"fraction_of_ceiling": 0.47}), []))
    assert "an image takes 10.2 ms there: 94% forward and backward, 6% update and communication." in text
    assert "It reaches 47% of the machine's ceiling." in text


def test_a_batch_that_does_not_fit_is_in_the_table_with_the_reason_below():
    text = flat(batch_tables([*sweep(), trial(state="infeasible", batch_size=4096)], []))
    assert "| 4096 | – | – |" in text
    assert "batch_size 4096 did not run: needs 30 GiB, 22 GiB are there" in text


def test_contended_rates_are_marked():
    assert "| yes |" in flat(batch_tables([*sweep(), trial(batch_size=256, metrics={"contended": 1.0})], []))
    assert "contended" not in flat(batch_tables([*sweep(), trial(batch_size=256, metrics={"contended": 0.0})], []))


def test_tables_of_several_groups_say_what_sets_them_apart():
    text = flat(batch_tables([*sweep(precision="bf16"), *sweep(precision="fp32")], ["batch_size", "precision"]))
    assert "With precision=bf16:" in text
    assert "With precision=fp32:" in text


def test_rates_that_are_no_numbers_or_sizes_that_have_no_order_break_no_summary():
    odd = [trial(float("nan"), batch_size=32), trial(0.0, batch_size=64), trial(batch_size="large"), trial()]
    assert batch_tables(odd, []) == []
    stages = {"load": 1, "forward": 9}
    mixed = [trial(num_workers=n, milliseconds=stages) for n in (0, "many", None, 2)]
    assert loader_tables(mixed, [])


# ---- loaders


def loading():
    """Two processes load beside training, and take the cores that it needs."""
    stages = [{"load": ms, "forward": f, "backward": 2 * f, "update": 10} for ms, f in ((60, 10), (5, 12), (1, 15))]
    rates = (100.0, 190.0, 170.0)
    return [
        trial(rate, loader="workers", num_workers=n, pin_memory=False, milliseconds=ms, verdict=input_bound())
        for n, rate, ms in zip((0, 1, 2), rates, stages, strict=True)
    ]


def test_loader_processes_are_a_table_of_stage_times():
    _, table, *_ = loader_tables(loading(), ["num_workers"])
    assert [[c.strip() for c in line.split("|")[1:-1]] for line in table.splitlines()] == [
        ["num_workers", "load", "forward", "backward and update", "images/s", "bound by"],
        ["----------:", "---:", "------:", "------------------:", "-------:", "--------"],
        ["0", "60.0", "10.0", "30.0", "100 ± 1", "input"],
        ["1", "5.00", "12.0", "34.0", "190 ± 1", "input"],
        ["2", "1.00", "15.0", "40.0", "170 ± 1", "input"],
    ]


def test_what_loader_processes_cost_the_training_beside_them_is_said():
    text = flat(loader_tables(loading(), ["num_workers"]))
    assert "Fastest: num_workers=1, 1.90 (1.88 to 1.92) times the rate of num_workers=0." in text
    assert "With num_workers=2, forward and backward take 1.50 times as long as without loader processes" in text
    assert "62% of each step waits for data" in text


def test_a_run_that_varied_neither_has_no_such_tables():
    trials = [trial(precision=p, batch_size=32, num_workers=0) for p in ("bf16", "fp32")]
    assert loader_tables(trials, ["precision"]) == batch_tables(trials, ["precision"]) == []


def test_the_extremes_of_several_rates_differ_by_more_than_luck():
    """By 2.5 standard errors, as the extremes of eight equal rates often do."""
    rows = [
        trial(rate, 2.0, loader="workers", num_workers=n, milliseconds={"load": 5, "forward": 9})
        for n, rate in enumerate((100.0, 101.0, 102.0, 103.6))
    ]
    assert "The rates cannot be told apart" in flat(loader_tables(rows, ["num_workers"]))


def test_rates_within_their_intervals_are_not_ranked():
    rates = {32: 100.0, 64: 120.0, 128: 130.0}
    text = flat(batch_tables([trial(rate, 60.0, batch_size=size) for size, rate in rates.items()], []))
    assert "Whether the rate is saturated at batch_size 32 is not known: of the larger ones 128 is the fastest" in text
    assert "at 1.30 (0.55 to 3.05) times its rate." in text
    slow = [
        trial(rate, 60.0, loader="workers", num_workers=n, milliseconds={"load": 5, "forward": 9})
        for n, rate in enumerate((100.0, 130.0))
    ]
    text = flat(loader_tables(slow, ["num_workers"]))
    assert "The rates cannot be told apart: the highest is 1.30 (0." in text


def test_a_rate_that_is_not_of_images_is_one_of_samples():
    other = sweep()
    for each in other:
        each.rate_metric = "tokens_per_second"
        for event in each.curve.values():
            event.metrics.update({f"tokens_per_second{e}": event.metrics[f"{RATE}{e}"] for e in ("", "_low", "_high")})
    assert "Why: a sample takes" in flat(batch_tables(other, []))
