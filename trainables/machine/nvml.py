"""Sensors of one CUDA device, read through NVML. A sensor without driver, library or permission gives None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

GIB = 2**30

_Read = Callable[[Any, Any], float]  # from the pynvml module and the device's handle


class Gpu:
    """NVML handle of the device that PyTorch calls `device`, whose number for NVML may differ."""

    def __init__(self, device: torch.device) -> None:
        self._nvml, self._handle = _opened(device)

    def sample(self) -> dict[str, float | None]:
        """Read the metrics now, by name; utilisation is over the last second or less, memory that of all processes."""
        return {
            "gpu_utilization": self._read(lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100),
            "gpu_memory_gib": self._read(lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used / GIB),
            "gpu_power_watts": self._read(lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3),
            "gpu_clock_mhz": self._read(lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
            "gpu_throttled_fraction": self._read(_is_throttled),
        }

    def joules(self) -> float | None:
        """Read the energy consumed since the driver was loaded."""
        return self._read(lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3)

    def hot_seconds(self) -> float | None:
        """Read the time slowed by heat since the driver was loaded."""
        return self._read(
            lambda nvml, gpu: nvml.nvmlDeviceGetViolationStatus(gpu, nvml.NVML_PERF_POLICY_THERMAL).violationTime / 1e9
        )

    def _read(self, read: _Read) -> float | None:
        if self._handle is None:
            return None
        try:
            return float(read(self._nvml, self._handle))
        except Exception:  # NVMLError, or the library is too old to have the function or the struct
            return None


def _is_throttled(nvml: Any, gpu: Any) -> float:
    """Throttling by heat or by the power supply. The power limit is excluded: it throttles each busy GPU."""
    reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
    faults = (
        nvml.nvmlClocksThrottleReasonHwSlowdown
        | nvml.nvmlClocksThrottleReasonSwThermalSlowdown
        | nvml.nvmlClocksThrottleReasonHwThermalSlowdown
        | nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown
    )
    return float(bool(reasons & faults))


def _opened(device: torch.device) -> tuple[Any, Any]:
    """Return the library and the device's handle in it, or neither."""
    try:
        import pynvml

        pynvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(device).uuid
        return pynvml, _handle(pynvml, str(uuid))
    except Exception:  # no library, driver or permission, or an old PyTorch
        return None, None


def _handle(nvml: Any, uuid: str) -> Any:
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except nvml.NVMLError_NotFound:  # a slice of a device
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")
