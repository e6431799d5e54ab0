"""How much memory is free, here, in a container, on GPUs."""

from pathlib import Path

import psutil
import pytest

from agent_ab.doctor import room
from agent_ab.doctor.memory import GIB, MIB, Free
from agent_ab.doctor.room import Device

LISTED = """Available devices:
  CUDA0: NVIDIA GeForce RTX 3090 (24126 MiB, 23512 MiB free)
  CUDA1: NVIDIA GeForce RTX 3060 (Ti) (12000 MiB, 11000 MiB free)
"""
CARD = Device("CUDA0", "NVIDIA GeForce RTX 3090", 24126 * MIB, 23512 * MIB)


def test_the_gpus_that_a_server_lists_are_read() -> None:
    assert room.parse_devices(LISTED)[0] == CARD
    assert room.parse_devices(LISTED)[1].about == "NVIDIA GeForce RTX 3060 (Ti)"
    assert room.parse_devices("Available devices:\n  (none)\n") == ()


def test_several_gpus_are_one_room_and_none_is_no_room_of_its_own() -> None:
    assert room.free(room.parse_devices(LISTED)).gpu == 34512 * MIB
    assert room.free(()).gpu is None


@pytest.mark.parametrize(
    "names",
    [
        {"memory.max": "1073741824", "memory.current": "805306368", "memory.stat": "anon 5\ninactive_file 268435456\n"},
        {
            "memory/memory.limit_in_bytes": "1073741824",
            "memory/memory.usage_in_bytes": "805306368",
            "memory/memory.stat": "total_inactive_file 268435456\n",
        },
    ],
    ids=["v2", "v1"],
)
def test_a_containers_limit_counts_and_what_the_kernel_would_give_back(tmp_path: Path, names: dict[str, str]) -> None:
    for name, text in names.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert room.free_ram(tmp_path) == min(512 * MIB, room.free_ram(Path("/nonexistent")))


@pytest.mark.parametrize("limit", ["max", "9223372036854771712", "nonsense"])
def test_a_container_without_a_limit_has_the_machines_memory(tmp_path: Path, limit: str) -> None:
    (tmp_path / "memory.max").write_text(limit)
    (tmp_path / "memory.current").write_text("1")
    assert room.free_ram(tmp_path) > psutil.virtual_memory().available // 2


def test_what_is_free_is_told_to_people() -> None:
    assert room.words(Free(2 * GIB)) == "2.0 GiB of main memory are free"
    told = "23.0 GiB on NVIDIA GeForce RTX 3090 and 2.0 GiB of main memory are free"
    assert room.words(Free(2 * GIB, CARD.free), (CARD,)) == told
    assert room.words(Free(2 * GIB, 4 * GIB)) == "4.0 GiB on the GPU and 2.0 GiB of main memory are free"


def test_nvidias_library_is_asked_where_no_server_lists_devices() -> None:
    assert all(device.total >= device.free for device in room.of_nvml())
