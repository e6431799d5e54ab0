"""How much memory is free for a model server, on this machine, in this container, on its GPUs."""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from agent_ab import machine, process
from agent_ab.doctor.memory import MIB, Free, size
from agent_ab.engine.engine import SYSTEM_PATH, Engine

ASK_S = 15.0
"""A server lists its devices in a second; one whose driver hangs never does."""
_DEVICE = re.compile(r"^\s+(\w+): (.*) \((\d+) MiB, (\d+) MiB free\)\s*$", re.MULTILINE)
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as llama-server lists it."""

    name: str
    """`CUDA0`, `Vulkan0`."""
    about: str
    total: int
    """Bytes."""
    free: int


def devices(engine: Engine) -> tuple[Device, ...]:
    """Return the GPUs that a llama-server can use; none for a build without a GPU's code, or without the question."""
    try:
        env = {"PATH": SYSTEM_PATH, "HOME": "/nonexistent", "LANG": "C.UTF-8"}
        if engine.library_path:
            env["LD_LIBRARY_PATH"] = engine.library_path
        done = process.run([str(engine.binary), "--list-devices"], env=env, timeout_s=ASK_S)
    except OSError:
        return ()
    return parse_devices((done.stdout + done.stderr).decode("utf-8", "replace"))


def parse_devices(text: str) -> tuple[Device, ...]:
    """Return what `--list-devices` lists."""
    return tuple(
        Device(name, about, int(total) * MIB, int(free) * MIB) for name, about, total, free in _DEVICE.findall(text)
    )


def of_nvml() -> tuple[Device, ...]:
    """Return NVIDIA's GPUs that have memory of their own, as its library counts them."""
    found = []
    known, now = machine.identity()["gpus"], machine.state()["gpus"]
    for index, (gpu, state) in enumerate(zip(known, now, strict=True)):
        total, used = gpu["memory_mib"], state["memory_mib"]
        # A GPU that shares the main memory says nothing here.
        if total and used is not None:
            found.append(Device(f"GPU {index}", str(gpu["name"]), total * MIB, (total - used) * MIB))
    return tuple(found)


def free_ram(root: Path = CGROUP) -> int:
    """Return the bytes of main memory that a new process can have: the machine's, or fewer by a container's limit."""
    free = int(psutil.virtual_memory().available)
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):
            left = int((root / limit).read_text()) - int((root / used).read_text()) + _reclaimable(root / used)
            free = min(free, max(0, left))
    return free


def _reclaimable(used: Path) -> int:
    """Return the bytes of files in a container's memory, which the kernel gives back when they are needed."""
    with suppress(OSError, ValueError):
        for line in used.with_name("memory.stat").read_text().splitlines():
            name, _, count = line.partition(" ")
            if name in ("inactive_file", "total_inactive_file"):
                return int(count)
    return 0


def free(found: Iterable[Device]) -> Free:
    """Return what is free here; several GPUs are one, as llama-server splits a model over them."""
    gpus = tuple(found)
    return Free(free_ram(), sum(device.free for device in gpus) if gpus else None)


def words(room: Free, found: Iterable[Device] = ()) -> str:
    """Return what is free, for people."""
    names = ", ".join(device.about for device in found)
    gpu = f"{size(room.gpu)} on {names or 'the GPU'} and " if room.gpu is not None else ""
    return f"{gpu}{size(room.ram)} of main memory are free"
