"""NVIDIA's library as a machine with one GPU has it, in the calls that agent_ab makes; one answer is not supported."""

from dataclasses import dataclass

NVML_CLOCK_SM = 1
NVML_TEMPERATURE_GPU = 0


class NVMLError(Exception):
    """What the real library raises."""


@dataclass
class Memory:
    """Bytes."""

    total: int = 24576 << 20
    used: int = 300 << 20


def nvmlInit() -> None:
    """Begin."""


def nvmlDeviceGetCount() -> int:
    """Return how many GPUs there are."""
    return 1


def nvmlDeviceGetHandleByIndex(index: int) -> str:
    """Return the handle of a GPU."""
    return f"gpu-{index}"


def nvmlDeviceGetName(_handle: str) -> bytes:
    """Return its name; old releases answer in bytes."""
    return b"NVIDIA GeForce RTX 3090"


def nvmlDeviceGetUUID(_handle: str) -> str:
    """Return its id."""
    return "GPU-1234"


def nvmlSystemGetDriverVersion() -> str:
    """Return the driver's version."""
    return "550.54"


def nvmlDeviceGetMemoryInfo(_handle: str) -> Memory:
    """Return its memory."""
    return Memory()


def nvmlDeviceGetMaxClockInfo(_handle: str, _clock: int) -> int:
    """Return MHz."""
    return 2100


def nvmlDeviceGetCurrentClocksThrottleReasons(_handle: str) -> int:
    """Return bits: idle, and the power limit."""
    return 0x1 | 0x4


def nvmlDeviceGetTemperature(_handle: str, _sensor: int) -> int:
    """Return degrees."""
    return 61


def nvmlDeviceGetPowerUsage(_handle: str) -> int:
    """Return milliwatts."""
    return 210_500


def nvmlDeviceGetEnforcedPowerLimit(_handle: str) -> int:
    """Be a card that does not tell."""
    raise NVMLError("not supported")


def nvmlDeviceGetClockInfo(_handle: str, _clock: int) -> int:
    """Return MHz."""
    return 1695


def nvmlDeviceGetPerformanceState(_handle: str) -> int:
    """Return the P state."""
    return 2
