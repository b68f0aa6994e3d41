import math
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainables.contract import Resources
from trainables.measure.verdict import MIN_GAIN, explain
from trainables.settings import checked
from trainables.vgg19_cifar10 import trainable as vgg19_cifar10
from trainables.vgg19_settings import Vgg19Settings

LAPTOP, GPU_NODE = Resources(cpus=2), Resources(cpus=8, gpus=1)


def settings(**chosen):
    return Vgg19Settings(
        **checked({"memory_format": "channels_last", "precision": "bf16", **chosen}, vgg19_cifar10.PARAMETERS)
    )


def stages(**milliseconds):
    return {f"{stage}_seconds": value / 1000 for stage, value in milliseconds.items()}


def advised(verdict):
    return {advice.parameter: (advice.new, round(advice.gain, 2)) for advice in verdict.advice}


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


def test_loading_beside_training_is_advised_where_cores_are_idle():
    """60 of 100 ms are loading: two processes would load in 30, within the 40 that training takes."""
    verdict = explain(settings(loader="workers"), stages(load=60, forward=15, backward=25), GPU_NODE)
    assert advised(verdict)["num_workers"] == (2, 2.5)


def test_loaders_that_cannot_keep_up_get_company():
    """Two that are always at work take 100 ms a step, so four take 50, and seven is all there are cores for."""
    waiting = explain(settings(loader="workers", num_workers=2), stages(load=60, forward=15, backward=25), GPU_NODE)
    assert advised(waiting)["num_workers"] == (4, 2.0)
    keeping_up = explain(settings(loader="workers", num_workers=2), stages(load=2, forward=40, backward=58), GPU_NODE)
    assert "num_workers" not in advised(keeping_up)


def test_loader_processes_gain_less_where_they_share_the_cores_with_training():
    """Of 100 ms 60 are loading. On 8 cores training loses 18 ms by them, on 2 cores more than they bring."""
    chosen, step = settings(loader="workers"), stages(load=60, forward=15, backward=25)
    assert advised(explain(chosen, step, Resources(cpus=8)))["num_workers"] == (2, pytest.approx(100 / 58, abs=0.01))
    assert "num_workers" not in advised(explain(chosen, step, LAPTOP))


def test_the_memory_loader_gathers_a_picture_in_7_microseconds():
    verdict = explain(settings(loader="workers", batch_size=1000), stages(load=60, forward=15, backward=25), LAPTOP)
    assert advised(verdict)["loader"] == ("memory", pytest.approx(100 / 47, abs=0.01))


def test_loader_processes_that_take_cores_from_training_are_told_to_go():
    """Decoding 500 pictures takes 60 ms of a core, which two cores feel as 72 of 200 ms; gathering them 3.5."""
    one, step = settings(loader="workers", num_workers=1, batch_size=500), stages(forward=80, backward=120)
    assert "loader" not in advised(explain(one, step, LAPTOP))  # what the process takes was not measured
    verdict = explain(one, {**step, "loader_cores": 0.3}, LAPTOP)
    assert advised(verdict)["loader"] == ("memory", pytest.approx(200 / (200 - 72 + 3.5), abs=0.01))
    busy = explain(one, {**step, "loader_cores": 1.0}, LAPTOP)  # three fifths at most are the loader's doing
    assert advised(busy)["loader"] == ("memory", pytest.approx(200 / (200 - 120 + 3.5), abs=0.01))
    on_gpu = explain(settings(loader="workers", num_workers=1, batch_size=2000), stages(backward=200), GPU_NODE)
    assert "loader" not in advised(on_gpu)


def test_pictures_kept_on_the_gpu_cost_neither_loading_nor_copying():
    verdict = explain(settings(loader="memory"), stages(load=20, transfer=30, forward=20, backward=30), GPU_NODE)
    assert advised(verdict)["loader"] == ("device", 2.0)
    assert advised(verdict)["pin_memory"] == (True, 1.18)


def test_16_bits_are_advised_by_the_ceilings_for_what_multiplies_and_by_the_bytes_for_the_rest():
    step = {**stages(forward=40, backward=60), "fraction_of_ceiling": 0.8}
    ceilings = {"ceiling_fp32_teraflops_per_second": 0.5, "ceiling_bf16_teraflops_per_second": 5.0}
    fp32, library = settings(precision="fp32"), settings(precision="fp32", conv_kernel="library")
    assert advised(explain(fp32, {**step, **ceilings}, LAPTOP))["precision"] == ("bf16", 5.56)  # 0.8 / 10 + 0.2 / 2
    assert advised(explain(library, {**step, **ceilings}, LAPTOP))["precision"] == ("bf16", 2.16)  # 0.8 / 2.2 + 0.2 / 2
    assert advised(explain(library, {**step, **ceilings}, GPU_NODE))["precision"] == ("bf16", 5.56)
    twice = {**ceilings, "ceiling_bf16_teraflops_per_second": 1.0}  # as without instructions for matrices
    assert advised(explain(fp32, {**step, **twice}, LAPTOP))["precision"] == ("bf16", 2.0)
    assert "precision" not in advised(explain(fp32, step, LAPTOP))
    slow = {**ceilings, "ceiling_bf16_teraflops_per_second": 0.4}
    assert "precision" not in advised(explain(fp32, {**step, **slow}, LAPTOP))


@pytest.mark.parametrize(
    ("parameter", "slow", "fast"),
    [
        ("memory_format", "contiguous", "channels_last"),
        ("conv_kernel", "library", "auto"),
        ("allocator", "system", "retain"),
    ],
)
def test_what_makes_a_cpu_faster_gains_by_the_share_of_forward_and_backward(parameter, slow, fast):
    chosen, measured = settings(**{parameter: slow}), {"system_time_fraction": 0.2}
    all_of_it, half = (explain(chosen, {**stages(load=x, backward=100), **measured}, LAPTOP) for x in (0, 100))
    assert advised(all_of_it)[parameter][0] == fast
    assert 1 < advised(half)[parameter][1] < advised(all_of_it)[parameter][1]
    assert parameter not in advised(explain(chosen, {**stages(backward=100), **measured}, GPU_NODE))


@pytest.mark.parametrize(("precision", "narrow", "wide"), [("bf16", 1.12, 1.5), ("fp32", 1.09, 1.35)])
def test_few_products_gain_more_in_a_wide_network_and_in_16_bits(precision, narrow, wide):
    for width, gain in ((0.25, narrow), (1, wide)):
        library = settings(conv_kernel="library", width=width, precision=precision)
        assert advised(explain(library, stages(backward=100), LAPTOP))["conv_kernel"] == ("auto", gain)


def test_keeping_memory_gains_the_time_that_the_system_takes():
    """A quarter of the 100 ms of computing, of 120 in all."""
    step, system = stages(load=20, backward=100), settings(allocator="system")
    verdict = explain(system, {**step, "system_time_fraction": 0.25}, LAPTOP)
    assert advised(verdict)["allocator"] == ("retain", pytest.approx(120 / 95, abs=0.01))
    assert "allocator" not in advised(explain(system, {**step, "system_time_fraction": 0.01}, LAPTOP))
    assert "allocator" not in advised(explain(system, step, LAPTOP))  # not measured
    of_several = settings(allocator="system", strategy="ddp")  # the system's time may be for messages
    assert "allocator" not in advised(explain(of_several, {**step, "system_time_fraction": 0.25}, LAPTOP))


def test_a_larger_batch_is_advised_where_it_shares_a_cost_that_each_step_has_and_fits():
    """The update takes 8 ms of 100, all that is done with weights 4 times as much (6 in fp32), operators 8 ms."""
    step, library = stages(forward=32, backward=60, update=8), settings(conv_kernel="library")
    small = {**step, "peak_memory_fraction": 0.05}
    assert advised(explain(settings(), small, LAPTOP))["batch_size"] == (1024, 1.54)
    assert advised(explain(settings(precision="fp32"), small, LAPTOP))["batch_size"] == (1024, 1.96)
    assert advised(explain(library, small, LAPTOP))["batch_size"] == (1024, 1.21)  # 1.5 times, and operators
    assert advised(explain(settings(), small, GPU_NODE))["batch_size"] == (512, 1.1)  # 1.5 times, hidden operators
    assert advised(explain(settings(), {**step, "peak_memory_fraction": 0.3}, LAPTOP))["batch_size"] == (256, 1.25)
    assert "batch_size" not in advised(explain(settings(), {**step, "peak_memory_fraction": 0.5}, LAPTOP))
    assert "batch_size" not in advised(explain(settings(), step, LAPTOP))  # who knows whether it fits
    mostly = {**stages(forward=4, backward=6, update=90), "peak_memory_fraction": 0.3}  # no more than there is
    assert advised(explain(settings(), mostly, LAPTOP))["batch_size"] == (256, 1.95)


def test_on_a_cpu_one_process_needs_to_wait_for_no_other():
    step = stages(forward=20, backward=30, communicate=50)
    assert advised(explain(settings(strategy="ddp"), step, LAPTOP))["strategy"] == ("single", 2.0)
    assert "strategy" not in advised(explain(settings(strategy="ddp"), step, Resources(cpus=8, gpus=2)))
    two = settings(strategy="ddp", world_size=2)  # which one process cannot have
    assert "strategy" not in advised(explain(two, step, LAPTOP))


def test_cores_without_a_thread_are_pointed_out():
    verdict = explain(settings(threads=1), stages(forward=40, backward=60), LAPTOP)
    assert advised(verdict)["threads"] == (2, 1.78)


def test_a_trial_that_is_as_it_should_be_gets_no_advice():
    verdict = explain(settings(), {**stages(load=1, forward=40, backward=58, update=1), "x": 1.0}, LAPTOP)
    assert (verdict.bound_by, verdict.advice) == ("compute", ())


METRICS = [
    *(f"{s}_seconds" for s in ("load", "transfer", "forward", "backward", "communicate", "update")),
    *(f"ceiling_{p}_teraflops_per_second" for p in ("fp32", "bf16")),
    *("fraction_of_ceiling", "fraction_of_bandwidth", "peak_memory_fraction"),
]


@given(
    st.dictionaries(st.sampled_from(METRICS), st.floats(0, 100) | st.just(math.nan)),
    st.sampled_from(["workers", "memory", "device"]),
    st.integers(0, 3),
    st.sampled_from(["fp32", "bf16"]),
    st.sampled_from(["single", "ddp"]),
    st.builds(Resources, st.integers(1, 64), st.integers(0, 4)),
)
@example({"load_seconds": 5e-324}, "workers", 0, "fp32", "single", Resources(1, 1))  # a thousandth of it is nothing
def test_whatever_was_measured_advice_names_another_value_and_a_gain(
    metrics, loader, num_workers, precision, strategy, resources
):
    chosen = settings(loader=loader, num_workers=num_workers, precision=precision, strategy=strategy)
    verdict = explain(chosen, metrics, resources)
    for advice in verdict.advice if verdict else ():
        assert advice.old == getattr(chosen, advice.parameter) != advice.new
        assert MIN_GAIN <= advice.gain < math.inf
        assert advice.why
    gains = [advice.gain for advice in verdict.advice] if verdict else []
    assert gains == sorted(gains, reverse=True)


def test_a_verdict_needs_no_torch():
    code = "import sys, trainables.measure.verdict; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


LAUNCHING = {
    **stages(forward=2, backward=3, update=1),
    "host_seconds": 0.0058,
    "gpu_utilization": 0.4,
    "fraction_of_ceiling": 0.1,
}


def test_a_gpu_that_waits_for_launches_is_given_a_graph_and_else_compiled():
    """The GPU is busy for 0.4 of the time, so a step takes at least 0.4 of what it does."""
    assert advised(explain(settings(cuda_graphs=False), LAUNCHING, GPU_NODE)) == {"cuda_graphs": (True, 2.5)}
    eager = {"cuda_graphs": False, "fused_optimizer": False}
    assert advised(explain(settings(**eager), LAUNCHING, GPU_NODE)) == {"compile": (True, 2.5)}


@pytest.mark.parametrize(
    ("config", "metrics"),
    [
        ({"cuda_graphs": "auto"}, {}),
        ({"cuda_graphs": True}, {}),
        ({}, {"host_seconds": 0.003}),
        ({}, {"fraction_of_ceiling": 0.3}),
        ({}, {"gpu_utilization": math.nan}),
    ],
)
def test_no_graph_is_advised_where_there_is_one_or_the_host_keeps_up(config, metrics):
    chosen = settings(**{"cuda_graphs": False, **config})
    assert advised(explain(chosen, {**LAUNCHING, **metrics}, GPU_NODE)) == {}
    assert "cuda_graphs" not in advised(explain(chosen, LAUNCHING, LAPTOP))
