"""Pairs that several tests look at: each is played once in a run of the tests, by the worker that asks first."""

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from agent_ab.files import locked
from tests.command import Done, agent_ab
from tests.conftest import ignore


@dataclass(frozen=True)
class Played:
    """A pair as it was played, in a directory that no test changes."""

    folder: Path
    done: Done

    def copied(self, to: Path) -> Path:
        """Return a copy of the directory for a test that writes into it."""
        return shutil.copytree(self.folder, to / "played", symlinks=True)


def once(factory: pytest.TempPathFactory, profile: str, seed: int = 4242) -> Played:
    """Return the pair of transfer-repair that `profile` plays; whoever comes while it is played waits."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, kept = shared / f"played-{profile}-{seed}", shared / f"played-{profile}-{seed}.json"
    with locked(kept.with_suffix(".lock"), f"plays {profile}", ignore):
        if not kept.exists():
            folder.mkdir()
            words = ("pair", "--task", "transfer-repair", "--seed", seed, "--profile", profile, "--json")
            done = agent_ab(folder, *words)
            kept.write_text(json.dumps(asdict(done)))
    return Played(folder, Done(**json.loads(kept.read_text())))
