"""Tasks x seeds -> planned pairs with their arm order. Pure."""

from dataclasses import dataclass

from agent_ab.config import Seeds
from agent_ab.model import Arm


@dataclass(frozen=True, slots=True)
class PlannedPair:
    """One pair to be played."""

    task: str
    seed: int
    repeat: int
    first_arm: Arm

    @property
    def id(self) -> str:
        """Return the pair's id, unique within a run."""
        return f"{self.task}-{self.seed}-{self.repeat}"

    @property
    def order(self) -> tuple[Arm, Arm]:
        """Return the arms in their order of play."""
        return (Arm.BASELINE, Arm.CANDIDATE) if self.first_arm is Arm.BASELINE else (Arm.CANDIDATE, Arm.BASELINE)


def plan_pair(task: str, seed: int, seeds: Seeds, repeat: int = 0) -> PlannedPair:
    """Return the plan of one pair, its arm order taken from `seeds`."""
    return PlannedPair(task, seed, repeat, seeds.first_arm(seed))
