"""Trials that were measured on the same validation samples, compared sample by sample."""

from statistics import NormalDist

import numpy as np
import pytest

from search.front.intervals import HALF_95
from search.front.paired import correlated_errors, correlations
from search.record.dataframes import Run
from search.record.run_state import RunState
from search.report.picks import against
from tests.search.runs import Recorder, config, typed
from trainables.kept_samples import as_text

SAMPLES = 5000


def alike(correlation: float, *shares: float, seed: int = 0) -> list[np.ndarray]:
    """Return bits of trainings with these accuracies, whose latent scores have that correlation."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(SAMPLES)
    scores = [correlation**0.5 * common + (1 - correlation) ** 0.5 * rng.standard_normal(SAMPLES) for _ in shares]
    return [(score < np.quantile(score, share)).astype(float) for score, share in zip(scores, shares, strict=True)]


def test_the_correlation_of_bits_is_found():
    one, other = alike(0.9, 0.7, 0.72)
    assert correlations([as_text(one), as_text(other)])[0, 1] == pytest.approx(np.corrcoef(one, other)[0, 1])


@pytest.mark.parametrize("unknown", ["", "bits 5 !", as_text(np.ones(SAMPLES)), as_text(np.arange(100.0))])
def test_what_is_not_known_is_not_correlated(unknown):
    one, other = (as_text(bits) for bits in alike(0.9, 0.7, 0.72))
    matrix = correlations([one, unknown, other])
    assert matrix[0, 1] == matrix[1, 2] == 0
    assert matrix[0, 2] > 0.5


def test_errors_are_drawn_with_their_correlations():
    matrix = correlations([as_text(bits) for bits in alike(0.8, 0.6, 0.6, 0.9)])
    rng = np.random.default_rng(0)
    drawn = np.stack([correlated_errors(matrix) @ rng.standard_normal(3) for _ in range(20_000)])
    assert np.corrcoef(drawn.T) == pytest.approx(matrix, abs=0.03)


def test_equal_samples_do_not_break_the_factor():
    text = as_text(alike(0.5, 0.7)[0])
    factor = correlated_errors(correlations([text, text, text]))
    assert np.isfinite(factor).all()
    drawn = factor @ np.random.default_rng(0).standard_normal(3)
    assert drawn == pytest.approx(np.full(3, drawn[0]), abs=0.01)


def run_state(bits, known=True, probed=False):
    """Two trials, the more accurate one slower; `probed`: each has a probe before it."""
    recorder = Recorder(constraints=[])
    for number, values in enumerate(bits, start=1):
        if probed:
            recorder.start(f"p000{number}", "probe", **config(64 * number))
            recorder.finish(f"p000{number}")
        trial_id, accuracy = f"t000{number}", values.mean()
        half = HALF_95 * values.std(ddof=1) / len(values) ** 0.5
        recorder.start(trial_id, **config(64 * number))
        recorder.measure(trial_id, 3, val_accuracy=accuracy)
        ends = {"val_accuracy_low": accuracy - half, "val_accuracy_high": accuracy + half}
        recorder.events[-1]["metrics"] |= {**ends, "images_per_second": 100.0 * number}
        if known:
            recorder.events[-1]["samples"] = {"val_accuracy": as_text(values)}
        recorder.finish(trial_id)
    return RunState(typed(recorder.events))


def test_the_interval_of_a_difference_holds_on_the_same_samples():
    """As the paired standard error, and far narrower than that of two independent intervals."""
    one, other = alike(0.95, 0.71, 0.70)
    paired, independent = (
        (state := run_state([one, other], known)).difference(*state.trials.values(), "val_accuracy")
        for known in (True, False)
    )
    assert paired.mean == pytest.approx(0.01)
    assert paired.deviation == pytest.approx((one - other).std(ddof=1) / SAMPLES**0.5, rel=1e-3)
    assert paired.deviation < 0.6 * independent.deviation


def test_of_100_pairs_the_intervals_hold_the_true_difference():
    """Samples drawn anew each time; the true difference is that of the shares."""
    held = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        hard = rng.standard_normal(SAMPLES)
        one, other = ((hard + 0.4 * rng.standard_normal(SAMPLES) < end).astype(float) for end in (0.6, 0.57))
        found = (state := run_state([one, other])).difference(*state.trials.values(), "val_accuracy")
        truth = _share(0.6) - _share(0.57)
        held += found.low <= truth <= found.high
    assert held >= 90


def _share(end: float) -> float:
    return NormalDist(0, (1 + 0.4**2) ** 0.5).cdf(end)


def test_the_front_is_surer_with_samples():
    """The slower trial is on the front only if it is truly more accurate."""
    bits = alike(0.97, 0.705, 0.70)
    by_samples, by_intervals = (run_state(bits, known).front_probabilities()["t0001"] for known in (True, False))
    assert by_intervals < by_samples - 0.05


def test_a_probe_that_shares_the_accuracy_of_a_trial_hides_no_samples():
    bits = alike(0.97, 0.705, 0.70)
    alone, probed = (run_state(bits, probed=probed).front_probabilities()["t0001"] for probed in (False, True))
    assert probed == pytest.approx(alone, abs=0.01)


def test_picks_say_the_difference_in_points(tmp_path):
    run = Run(tmp_path, run_state(alike(0.95, 0.72, 0.70)))
    (said, *_) = against(run, run.state.trials["t0001"])
    assert "val_accuracy 2.00 points higher (1." in said
