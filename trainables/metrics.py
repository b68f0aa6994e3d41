"""Metrics that every training reports, with their units."""

from __future__ import annotations

import math
from collections.abc import Mapping

from trainables.contract import Measurement, Metric


def common_metrics(unit: str) -> dict[str, Metric]:
    """Return the metrics of a training whose rate counts `unit`, such as images or tokens."""
    return {
        "train_loss": Metric("", "the loss that is minimised, mean over the epoch's steps", probed=False),
        f"{unit}_per_second": Metric(
            f"{unit}/s", "rate of the whole job, waiting for data included, warm-up and evaluation excluded"
        ),
        f"{unit}_per_second_low": Metric(f"{unit}/s", "lower end of the 95% interval"),
        f"{unit}_per_second_high": Metric(f"{unit}/s", "upper end of the 95% interval"),
        "throughput_windows": Metric("windows", f"windows that {unit}_per_second is measured over"),
        f"throughput_{unit}": Metric(unit, f"{unit} in these windows"),
        "throughput_seconds": Metric("s", "duration of these windows"),
        "warmup_steps": Metric("steps", "steps left out at the beginning, until they got no faster"),
        "contended_windows": Metric(
            "windows",
            "windows left out because others (processes, the hypervisor, a quota) took more than 12% of the trial's"
            " cores, or the processor or the GPU was slowed down",
        ),
        "contended": Metric(
            "0 or 1",
            "1: fewer than 3 windows were uncontended, so the rate is over the least contended others, too; those are"
            " not in contended_windows, which is 0 where no window was left out",
        ),
        "load_seconds": Metric("s", "per step, waiting for data; this and the next five from profiled steps"),
        "transfer_seconds": Metric("s", "per step, copying to the GPU"),
        "forward_seconds": Metric("s", "per step, network and loss"),
        "backward_seconds": Metric("s", "per step, until the last gradient is there"),
        "communicate_seconds": Metric("s", "per step, waiting for messages of other processes, such as gradients"),
        "update_seconds": Metric("s", "per step, optimizer"),
        "step_seconds": Metric("s", "per step, sum of these stages"),
        "profiled_steps": Metric("steps", "steps that the stages are means over"),
        "host_seconds": Metric(
            "s", "per profiled step on a GPU, launching forward, backward and update, kernel by kernel"
        ),
        "cpu_utilization": Metric("fraction", "use of the trial's cores by its own processes"),
        "machine_cpu_utilization": Metric("fraction", "use of all cores by all processes"),
        "resident_gib": Metric("GiB", "resident memory of the trial's processes, mean while training"),
        "loader_processes": Metric("processes", "processes of the loader"),
        "loader_cores": Metric("cores", "cores used by the loader processes, per process of the trial"),
        "system_time_fraction": Metric("fraction", "system time in the trial's own CPU time, mostly for memory"),
        "nodes": Metric("nodes", "nodes of the trial's processes, in a cluster of several"),
        "utilization_imbalance": Metric("ratio", "busiest GPU, on a CPU process, over the mean of all; 1: all alike"),
        "memory_imbalance": Metric("ratio", "fullest GPU or process at its peak over the mean of all; 1: all alike"),
        "gradient_staleness_mean": Metric(
            "updates", "updates by others while a worker computed; asynchronous parameter_server"
        ),
        "gradient_staleness_max": Metric("updates", "maximum of them"),
        "gpu_utilization": Metric("fraction", "time in which the GPU was busy"),
        "gpu_memory_gib": Metric("GiB", "memory in use on the fullest GPU, by all processes"),
        "gpu_power_watts": Metric("W", "power of the trial's GPUs"),
        "gpu_clock_mhz": Metric("MHz", "clock of the multiprocessors"),
        "gpu_throttled_fraction": Metric("fraction", "time in which heat or power slowed the GPU"),
        f"{unit}_per_joule": Metric(
            f"{unit}/J", f"{unit} per energy of the GPUs, or of the processor if it reports energy"
        ),
        "teraflops_per_second": Metric("TFLOP/s", "counted operations of the network at the rate measured"),
        "memory_gib_per_second": Metric(
            "GiB/s", "memory traffic of the network's operators, as if there were no caches"
        ),
        "fraction_of_bandwidth": Metric(
            "fraction", "memory traffic over the rate of copying memory here; above 1 thanks to caches"
        ),
        "ceiling_fp32_teraflops_per_second": Metric("TFLOP/s", "best rate measured on these cores or GPUs in fp32"),
        "ceiling_bf16_teraflops_per_second": Metric(
            "TFLOP/s", "likewise in bf16; absent on a processor without instructions for it"
        ),
        "ceiling_fp16_teraflops_per_second": Metric("TFLOP/s", "likewise in fp16; absent without a GPU"),
        "fraction_of_ceiling": Metric(
            "fraction", "rate over the best matrix or convolution rate measured in this precision"
        ),
        "fraction_of_matrix_rate": Metric("fraction", "rate over the matrix rate measured in this precision"),
        "epoch_seconds": Metric("s", "training of the epoch", probed=False),
        "training_seconds": Metric(
            "s", "training of all epochs, evaluation excluded, as predicted by those so far", probed=False
        ),
        "evaluation_seconds": Metric("s", "evaluation after the epoch", probed=False),
        "checkpoint_seconds": Metric(
            "s", "writing the checkpoint, if one was due; absent from an epoch that is reported again", probed=False
        ),
        "peak_memory_gib": Metric(
            "GiB", "peak so far: tensors on the fullest GPU, or resident memory of all processes"
        ),
        "peak_reserved_gib": Metric(
            "GiB", "peak so far of PyTorch's allocator on the fullest GPU: tensors, graphs, workspaces, what it keeps"
        ),
        "peak_memory_fraction": Metric(
            "fraction",
            "peak_reserved_gib over that GPU's memory, or peak_memory_gib over the machine's or container's",
            limit=1.0,
        ),
        "predicted_memory_gib": Metric("GiB", "peak_reserved_gib predicted before the start, on a CPU peak_memory_gib"),
    }


def training_seconds(measurement: Measurement, before: Measurement | None, epochs: int) -> float:
    """Return the seconds of all `epochs`, predicted by those until a measurement; `before`: that of the last epoch."""
    spent = before.metrics.get("training_seconds", math.nan) * before.epoch / epochs if before else 0.0
    return (spent + measurement.metrics["epoch_seconds"]) * epochs / measurement.epoch


def interval_ends(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return the ends of the intervals of means over samples, `val_loss_low` and `val_loss_high` for `val_loss`."""
    return {
        f"{name}_{end}": Metric(metric.unit, f"{which} end of the 95% interval over the samples", probed=False)
        for name, metric in metrics.items()
        for end, which in (("low", "lower"), ("high", "upper"))
    }
