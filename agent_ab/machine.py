"""What the machine was and in what state while an attempt ran; `conditions` says whether two attempts met the same.

GPU facts come from NVIDIA's own library where the package nvidia-ml-py is installed (extra `gpu`).
"""

import functools
import importlib
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from agent_ab.model import Json

LOOK_S = 1.0
"""How often the state is looked at while an attempt runs."""
MIB = 1 << 20
THROTTLES = {
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x20: "temperature",
    0x40: "hardware temperature",
    0x80: "hardware power brake",
}
"""nvmlClocksThrottleReasons that slow a GPU down; idle and application clocks are not among them (nvml.h)."""


class Watch:
    """Looks at the machine while one attempt runs."""

    def __init__(self) -> None:
        """Look for the first time, before the attempt's server starts."""
        self._start = state()
        self._last = self._start
        self._peak = _peaks(self._start)
        self._looked_at = time.monotonic()
        self._pid: int | None = None
        self._throttled: set[str] = set()

    @contextmanager
    def serving(self, pid: int | None) -> Iterator[None]:
        """Watch the memory of the server's process `pid`, if it is ours; look once more before the block ends.

        End the block before the server is stopped: its peak memory is known only while it runs.
        """
        self._pid = pid
        try:
            yield
        finally:
            self._look()
            self._pid = None

    def look(self) -> None:
        """Look, unless the last look was a moment ago."""
        if time.monotonic() - self._looked_at >= LOOK_S:
            self._look()

    def record(self) -> Json:
        """Look for the last time and return what is known: what the machine is, its state at start and end, its peaks."""
        self._look()
        return {
            "is": identity(),
            "start": self._start,
            "end": self._last,
            "peak": self._peak,
            "throttled": sorted(self._throttled),
        }

    def _look(self) -> None:
        self._looked_at = time.monotonic()
        self._last = state()
        seen = _peaks(self._last)
        if self._pid is not None:
            seen["server_rss_mib"] = _peak_rss_mib(self._pid)
        self._peak = {name: _greater(self._peak.get(name), value) for name, value in (self._peak | seen).items()}
        self._throttled |= {why for gpu in self._last["gpus"] for why in gpu["throttled"]}


def identity() -> dict[str, Json]:
    """Return what does not change while the machine runs."""
    return dict(_identity())


@functools.cache
def _identity() -> dict[str, Json]:
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "memory_mib": psutil.virtual_memory().total // MIB,
        "system": f"{platform.system()} {platform.release()}",
        "gpus": [gpu.identity() for gpu in _gpus()],
    }


def state() -> dict[str, Json]:
    """Return what changes."""
    # The one-minute average; psutil asks Windows, too.
    load = psutil.getloadavg()[0]
    return {
        "load": round(load, 2),
        "cpu_mhz": _cpu_mhz(),
        "temperature_c": _temperature_c(),
        "memory_free_mib": psutil.virtual_memory().available // MIB,
        "gpus": [gpu.state() for gpu in _gpus()],
    }


def _peaks(seen: Mapping[str, Any]) -> dict[str, Json]:
    peaks: dict[str, Json] = {"load": seen["load"], "temperature_c": seen["temperature_c"]}
    for index, gpu in enumerate(seen["gpus"]):
        for name in ("memory_mib", "temperature_c", "power_w"):
            peaks[f"gpu{index}_{name}"] = gpu[name]
    return peaks


def _greater(one: Json, other: Json) -> Json:
    return max((value for value in (one, other) if value is not None), default=None)


def _peak_rss_mib(pid: int) -> int | None:
    """Return the sum of the peaks of a process and of all that it started; None when it is gone."""
    with suppress(psutil.Error):
        family = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
        return sum(filter(None, map(_peak_of_one_mib, family))) or None
    return None


def _peak_of_one_mib(pid: int) -> int | None:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) // 1024
    with suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss // MIB)
    return None


def _cpu_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _cpu_mhz() -> float | None:
    with suppress(OSError, NotImplementedError, AttributeError):
        frequency = psutil.cpu_freq()
        return round(frequency.current, 0) if frequency else None
    return None


def _temperature_c() -> float | None:
    with suppress(OSError, AttributeError):
        sensors = psutil.sensors_temperatures()
        return max((entry.current for entries in sensors.values() for entry in entries if entry.current), default=None)
    return None


class _Gpu:
    """One NVIDIA GPU; a question that it does not answer is None."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml, self._handle = nvml, nvml.nvmlDeviceGetHandleByIndex(index)

    def identity(self) -> dict[str, Json]:
        nvml = self._nvml
        return {
            "name": self._ask(nvml.nvmlDeviceGetName),
            "uuid": self._ask(nvml.nvmlDeviceGetUUID),
            "driver": self._try(nvml.nvmlSystemGetDriverVersion),
            "memory_mib": self._ask(nvml.nvmlDeviceGetMemoryInfo, lambda memory: memory.total // MIB),
            "greatest_sm_mhz": self._ask(lambda gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)),
        }

    def state(self) -> dict[str, Json]:
        nvml = self._nvml
        reasons = self._ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons) or 0
        return {
            "memory_mib": self._ask(nvml.nvmlDeviceGetMemoryInfo, lambda memory: memory.used // MIB),
            "temperature_c": self._ask(lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
            "power_w": self._ask(nvml.nvmlDeviceGetPowerUsage, lambda milliwatts: milliwatts // 1000),
            "power_limit_w": self._ask(nvml.nvmlDeviceGetEnforcedPowerLimit, lambda milliwatts: milliwatts // 1000),
            "sm_mhz": self._ask(lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
            "performance_state": self._ask(nvml.nvmlDeviceGetPerformanceState),
            "throttled": [why for bit, why in THROTTLES.items() if reasons & bit],
        }

    def _ask(self, question: Callable[[Any], Any], unit: Callable[[Any], Json] = lambda answer: answer) -> Json:
        return self._try(lambda: unit(question(self._handle)))

    def _try(self, question: Callable[[], Json]) -> Json:
        try:
            answer = question()
        except self._nvml.NVMLError:
            return None
        return answer.decode() if isinstance(answer, bytes) else answer


@functools.cache
def _gpus() -> tuple[_Gpu, ...]:
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return ()
    try:
        nvml.nvmlInit()
        return tuple(_Gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError:
        return ()
