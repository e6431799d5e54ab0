"""Scores -> classes: near tie, sampling, outside support, not judged. The threshold is measured, never chosen. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent_ab.judge.case import Outlier, Score, TokenScore


class Class(StrEnum):
    """What one difference between two replies to the same request is."""

    NEAR_TIE = "near tie"
    """The target holds both tokens for as good as equal: their gap is within what the size of a batch changes."""
    SAMPLING = "sampling"
    """The sampler could have said both, and they are no near tie."""
    OUTSIDE = "outside support"
    """The target would not have said it, by more than the size of a batch can change: a fault."""
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class Threshold:
    """How far the size of a batch alone moves a logit gap."""

    nats: float
    """The largest change seen of a gap between tokens that the sampler chose between, batch 1 to batch n_max + 1."""
    positions: int
    """Places at which it was measured."""
    many: int
    """n_max + 1."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One case with its class."""

    score: Score
    kind: Class | None
    """None: the replies are equal."""
    arm: str = ""
    """Of `outside support`: whose token it is."""
    reason: str = ""
    """Of `not judged`: why."""
    outliers: tuple[Outlier, ...] = ()
    """Tokens after the first difference that lie outside the support by more than the threshold."""

    @property
    def fault(self) -> bool:
        """Return whether something was said that the target would not say."""
        return self.kind is Class.OUTSIDE or bool(self.outliers)


def threshold(scores: Iterable[Score], many: int) -> Threshold:
    """Return the near-tie threshold of everything that was scored."""
    judged = [score for score in scores if not score.note]
    return Threshold(max((s.noise for s in judged), default=0.0), sum(s.positions for s in judged), many)


def judge_all(scores: Sequence[Score], limit: Threshold) -> tuple[Judged, ...]:
    """Return every score with its class."""
    return tuple(classify(score, limit) for score in scores)


def classify(score: Score, limit: Threshold) -> Judged:
    """Return one score with its class."""
    if score.note:
        return Judged(score, Class.NOT_JUDGED, reason=score.note)
    outliers = tuple(o for o in score.outliers if o.arm == "candidate" and _outside(o.score, limit))
    if score.index is None or score.baseline is None or score.candidate is None:
        return Judged(score, None)
    if any(o.arm == "both" and _outside(o.score, limit) for o in score.outliers):
        reason = "both arms said a token that the judge holds for impossible: it does not see what the servers saw"
        return Judged(score, Class.NOT_JUDGED, reason=reason)
    outside = {"baseline": _outside(score.baseline, limit), "candidate": _outside(score.candidate, limit)}
    if all(outside.values()) or (outside["baseline"] and not score.exact):
        reason = "the baseline's own token is outside the support: the judge does not see what the server saw"
        return Judged(score, Class.NOT_JUDGED, reason=reason)
    if any(outside.values()):
        if not limit.positions:
            return Judged(score, Class.NOT_JUDGED, reason="no place was left to measure the near-tie threshold at")
        return Judged(score, Class.OUTSIDE, next(arm for arm, said in outside.items() if said), outliers=outliers)
    near = score.gap is not None and abs(score.gap) <= limit.nats
    return Judged(score, Class.NEAR_TIE if near else Class.SAMPLING, outliers=outliers)


def _outside(token: TokenScore, limit: Threshold) -> bool:
    return token.margin is None or token.margin > limit.nats


def counts(judged: Iterable[Judged]) -> Mapping[str, int]:
    """Return how many differences there are of each class, all of them named; equal replies are not counted."""
    found = Counter(item.kind for item in judged if item.kind is not None)
    return {kind.value: found[kind] for kind in Class}


def sentence(judged: Judged, limit: Threshold) -> str:
    """Return one difference in one line."""
    score = judged.score
    if judged.kind is None:
        return f"equal, {score.scanned} tokens looked at" if score.scanned else "equal"
    if judged.kind is Class.NOT_JUDGED:
        return f"not judged: {judged.reason}"
    assert score.baseline and score.candidate
    sides = f"baseline {_side(score.baseline)}, candidate {_side(score.candidate)}"
    gap = "" if score.gap is None else f"; gap {abs(score.gap):.3f} nat, threshold {limit.nats:.3f}"
    whose = f" ({judged.arm})" if judged.arm else ""
    later = f"; {len(judged.outliers)} later tokens outside as well" if judged.outliers else ""
    return f"{judged.kind}{whose}: token {score.index}: {sides}{gap}{later}"


def _side(token: TokenScore) -> str:
    logp = "impossible" if token.logp is None else f"{token.logp:.3f}"
    outside = "forbidden" if token.margin is None else f"{token.margin:.3f} outside" if token.margin else ""
    support = f", {outside}" if outside else ""
    return f"{token.piece!r} ({logp}, rank {token.rank}{support})"
