"""Servers that live longer than an attempt, one an arm, both from the same pair on."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from agent_ab.config import ArmSettings
from agent_ab.errors import ApparatusError
from agent_ab.model import Arm, Step
from agent_ab.models.models import Model
from agent_ab.server import serving
from agent_ab.server.serving import Address, AnyEngine, ModelServer


class Life:
    """One arm's server, started when it is first needed."""

    def __init__(self, log: Path) -> None:
        """Have the server write its output to `log`."""
        self.served = 0
        """Attempts that it has served."""
        self._log = log
        self._stack = ExitStack()
        self._server: ModelServer | None = None
        self._started_with: tuple[AnyEngine, ArmSettings, Model] | None = None
        self._at: Address | None = None

    def at(self, engine: AnyEngine) -> Address:
        """Return where the server is reached, the same as long as it lives."""
        self._at = self._at or serving.address(engine)
        return self._at

    def serves(self, engine: AnyEngine, settings: ArmSettings, model: Model) -> bool:
        """Return whether the server was started with exactly these, or is not started yet."""
        return self._started_with in (None, (engine, settings, model))

    @contextmanager
    def lent(
        self, engine: AnyEngine, settings: ArmSettings, model: Model, *, seed: int, log: Path
    ) -> Iterator[ModelServer]:
        """Give the server to one attempt, whose part of its output is in `log` afterwards.

        Raises ApparatusError; so it does when the server was started with something else.
        """
        if not self.serves(engine, settings, model):
            raise ApparatusError(
                Step.SERVER, "the long-lived server was started with another model or settings", self._log
            )
        self._started_with = (engine, settings, model)
        if self._server is None:
            self._log.parent.mkdir(exist_ok=True)
            self._server = self._stack.enter_context(
                serving.started(engine, settings, model, at=self.at(engine), seed=seed, log=self._log)
            )
            begin = 0
        else:
            self._server.check_alive("between two attempts")
            begin = self._log.stat().st_size
        try:
            yield self._server
        finally:
            self.served += 1
            _copy(self._log, begin, log)

    def end(self) -> None:
        """Stop the server. Raises ApparatusError when it does not go."""
        self._stack.close()


class Lives:
    """Both arms' present lives."""

    def __init__(self, folder: Path) -> None:
        """Keep the servers' output in `folder`."""
        self._folder = folder
        self._number = 0
        self._lives: dict[Arm, Life] = {}

    def of(self, arm: Arm) -> Life:
        """Return the life of `arm`'s server."""
        if not self._lives:
            # A resumed run has lives from before.
            while any((self._folder / f"{self._number}-{arm}.log").exists() for arm in Arm):
                self._number += 1
            self._lives = {arm: Life(self._folder / f"{self._number}-{arm}.log") for arm in Arm}
            self._number += 1
        return self._lives[arm]

    @property
    def begun(self) -> bool:
        """Return whether an attempt has been served in the present lives."""
        return any(life.served for life in self._lives.values())

    def end(self) -> None:
        """Stop both servers; the next attempt begins new lives. Raises ApparatusError when one does not go."""
        with ExitStack() as stack:
            for life in self._lives.values():
                stack.callback(life.end)
            self._lives = {}


def _copy(source: Path, begin: int, target: Path) -> None:
    with source.open("rb") as whole, target.open("wb") as part:
        whole.seek(begin)
        shutil.copyfileobj(whole, part)
        part.flush()
        os.fsync(part.fileno())
