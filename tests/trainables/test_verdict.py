import math
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainables.contract import Resources
from trainables.measure.verdict import explain
from trainables.setting_check import checked
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings

LAPTOP, GPU_NODE = Resources(cpus=2), Resources(cpus=8, gpus=1)


def settings(**chosen):
    return Vgg19Settings(
        **checked({"memory_format": "channels_last", "precision": "bf16", **chosen}, vgg19_cifar10.PARAMETERS)
    )


def stages(**milliseconds):
    return {f"{stage}_seconds": value / 1000 for stage, value in milliseconds.items()}


@pytest.mark.parametrize(
    ("milliseconds", "bound_by", "share"),
    [
        ({"load": 62, "forward": 10, "backward": 20, "update": 8}, "input", 0.62),
        ({"load": 1, "transfer": 50, "forward": 20, "backward": 29}, "transfer", 0.50),
        ({"load": 30, "forward": 20, "backward": 20, "update": 30}, "compute", 0.70),
        ({"forward": 10, "backward": 20, "communicate": 60, "update": 10}, "communication", 0.60),
    ],
)
def test_a_trial_is_bound_by_what_takes_the_largest_share_of_its_steps(milliseconds, bound_by, share):
    verdict = explain(settings(), stages(**milliseconds), LAPTOP)
    assert (verdict.bound_by, verdict.share) == (bound_by, pytest.approx(share))
    assert verdict.why.startswith(f"{share:.0%} of each step ")


def test_training_is_bound_by_memory_where_that_is_nearer_to_its_limit_than_arithmetic():
    step = stages(forward=40, backward=60)
    roofs = {"fraction_of_ceiling": 0.2, "fraction_of_bandwidth": 0.8}
    verdict = explain(settings(), {**step, **roofs}, LAPTOP)
    assert verdict.bound_by == "memory"
    assert verdict.why == "100% of each step moves bytes, at 80% of the rate at which memory is copied here"
    assert explain(settings(), {**step, **roofs, "fraction_of_ceiling": 0.9}, LAPTOP).bound_by == "compute"
    assert explain(settings(), {**step, **roofs, "fraction_of_bandwidth": 0.3}, LAPTOP).bound_by == "compute"
    assert explain(settings(), {**step, "fraction_of_ceiling": 0.2}, LAPTOP).bound_by == "compute"


@pytest.mark.parametrize("metrics", [{}, {"images_per_second": 300.0}, stages(load=0), stages(load=math.nan)])
def test_nothing_is_said_of_a_trial_without_profiled_steps(metrics):
    assert explain(settings(), metrics, LAPTOP) is None


METRICS = [
    *(f"{s}_seconds" for s in ("load", "transfer", "forward", "backward", "communicate", "update")),
    *(f"ceiling_{p}_teraflops_per_second" for p in ("fp32", "bf16")),
    *("fraction_of_ceiling", "fraction_of_bandwidth", "host_seconds"),
]


@given(
    st.dictionaries(st.sampled_from(METRICS), st.floats(0, 100) | st.just(math.nan)),
    st.sampled_from(["workers", "memory", "device"]),
    st.integers(0, 3),
    st.sampled_from(["fp32", "bf16"]),
    st.sampled_from(["single", "ddp"]),
    st.builds(Resources, st.integers(1, 64), st.integers(0, 4)),
)
@example({"load_seconds": 5e-324}, "workers", 0, "fp32", "single", Resources(1, 1))
def test_whatever_was_measured_the_verdict_has_a_share_and_a_reason(
    metrics, loader, num_workers, precision, strategy, resources
):
    chosen = settings(loader=loader, num_workers=num_workers, precision=precision, strategy=strategy)
    if (verdict := explain(chosen, metrics, resources)) is not None:
        assert 0 < verdict.share <= 1
        assert verdict.why.startswith(f"{verdict.share:.0%} of each step ")


def test_a_verdict_needs_no_torch():
    code = "import sys, trainables.measure.verdict; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


LAUNCHING = {
    **stages(forward=2, backward=3, update=1),
    "host_seconds": 0.0058,
    "fraction_of_ceiling": 0.1,
}


def test_a_gpu_that_waits_for_launches_is_bound_by_the_host():
    verdict = explain(settings(cuda_graphs=False), LAUNCHING, GPU_NODE)
    assert (verdict.bound_by, verdict.share) == ("host", 1.0)
    assert "at 10% of its ceiling" in verdict.why


@pytest.mark.parametrize(
    ("config", "metrics", "resources"),
    [
        ({"cuda_graphs": "auto"}, {}, GPU_NODE),
        ({"cuda_graphs": True}, {}, GPU_NODE),
        ({}, {"host_seconds": 0.003}, GPU_NODE),
        ({}, {"fraction_of_ceiling": 0.3}, GPU_NODE),
        ({}, {"fraction_of_ceiling": math.nan}, GPU_NODE),
        ({}, {}, LAPTOP),
    ],
)
def test_the_host_does_not_bound_a_step_that_is_captured_or_fast_enough(config, metrics, resources):
    chosen = settings(**{"cuda_graphs": False, **config})
    assert explain(chosen, {**LAUNCHING, **metrics}, resources).bound_by == "compute"
