"""One case before the judge: where two replies part, and what the target itself says of that place. Pure but for the target."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from agent_ab.judge.case import Case, Outlier, Said, Score
from agent_ab.judge.rules import Place, Reading, Target
from agent_ab.judge.sampler_support import from_settings, gap_change, objection
from agent_ab.judge.text import Recut, recut

SCAN = 256
"""Most tokens that are read from the first difference on, or of a reply without one."""
SHOWN = 60
"""Characters that are shown of what stands before a difference."""
OUTLIERS = 8
"""Most outliers of one reply that are told one by one."""


def examine(case: Case, target: Target, many: int, places: int = 0) -> Score:
    """Return the judge's answer; `many` is the size of a verification batch, n_max + 1.

    The near-tie threshold is measured at so many `places` at least, the last ones of the prompt among them.
    """
    reason = objection(case.settings)
    if reason:
        return Score(case.id, reason)
    prompt = _prompt(case, target)
    if prompt is None:
        return Score(case.id, "the prompt cannot be rebuilt: the server counted other tokens")
    reading = Reading(target, prompt, from_settings(case.settings, target.suppressed), case.settings)
    try:
        if case.baseline.tokens is not None and case.candidate.tokens is not None:
            score = _Exam(case, reading, many).of_tokens(case.baseline.tokens, case.candidate.tokens)
        else:
            score = _of_texts(case, reading, many)
    finally:
        reading.close()
    return score if score.note or score.positions >= places else _with_prompt(score, reading, many, places)


def _with_prompt(score: Score, reading: Reading, many: int, places: int) -> Score:
    """Return `score` with the noise at the prompt's last places taken in: a short reply alone has too few."""
    count = min(places - score.positions, len(reading.prompt) - 1)
    head, tail = reading.prompt[:-count], reading.prompt[-count:]
    again = Reading(reading.target, head, reading.sampler, {})
    exam = _Exam(Case(score.case, "", None, {}, Said(), Said()), again, many)
    exam.read(tail)
    noise, _ = exam.in_batches(tail)
    return replace(score, noise=max(score.noise, noise), positions=score.positions + exam.positions)


def _prompt(case: Case, target: Target) -> list[int] | None:
    """Return the prompt's tokens, as many as the server counted; a template may hold the first special token or not."""
    for whole in (True, False):
        tokens = target.tokenize(case.prompt, whole)
        if tokens and case.prompt_tokens in (None, len(tokens)):
            return tokens
    return None


def _of_texts(case: Case, reading: Reading, many: int) -> Score:
    found = recut(case.baseline, case.candidate, reading)
    if not isinstance(found, Recut):
        return Score(case.id, found, exact=False)
    score = _Exam(case, reading, many).of_tokens((*found.path, found.baseline), (*found.path, found.candidate))
    return replace(score, exact=False)


@dataclass(slots=True)
class _Look:
    """What is kept of one place, to be compared with the same place in a larger batch."""

    tokens: list[int]
    values: npt.NDArray[np.float64]


@dataclass(slots=True)
class _Exam:
    """The examination of one case whose tokens are known."""

    case: Case
    reading: Reading
    many: int
    looks: list[_Look] = field(default_factory=list)
    outliers: list[Outlier] = field(default_factory=list)

    @property
    def positions(self) -> int:
        """Return at how many places the noise is measured; the row before the first token is the prompt's own."""
        return max(0, len(self.looks) - 1)

    def of_tokens(self, baseline: Sequence[int], candidate: Sequence[int]) -> Score:
        """Read the candidate's reply one token at a time, judge the first difference, and read it again in batches."""
        index = _first_difference(baseline, candidate)
        if index is not None and index >= min(len(baseline), len(candidate)):
            return Score(
                self.case.id, "one reply is the beginning of the other: it was cut off, the model did not end it"
            )
        if self.reading.constrained and not self.reading.grammar_fits(baseline[:index]):
            return Score(self.case.id, "the baseline's own reply does not fit the request's grammar as it was recorded")
        said = list(candidate[: (index or 0) + SCAN])
        other = None if index is None else baseline[index]
        score = self.read(said, index, other)
        if score is None:
            return Score(self.case.id, "the grammar does not go along with the reply")
        noise, gap_many = self.in_batches(said, index, other)
        return replace(
            score,
            gap_many=gap_many,
            noise=noise,
            positions=self.positions,
            grammar="applied" if self.reading.constrained else "",
            scanned=len(self.looks),
            outliers=tuple(self.outliers[:OUTLIERS]),
        )

    def read(self, said: list[int], index: int | None = None, other: int | None = None) -> Score | None:
        """Look at every place one token at a time; at `index` the baseline said `other`. None: the grammar objects."""
        score = Score(self.case.id)
        for at, token in enumerate(said):
            place = self.reading.place(said[:at])
            if place is None:
                # A grammar that a wrong token has left says nothing of what follows.
                return score if index is not None and at > index else None
            tokens = [token]
            if at == index and other is not None:
                tokens = [other, token]
                score = self._judged(place, said, at, other)
            self.looks.append(_Look(rivals := place.rivals(tokens), place.row[rivals]))
            if at != index and not place.possible(token):
                arm = "both" if index is None or at < index else "candidate"
                self.outliers.append(Outlier(at, arm, place.score(token)))
        return score

    def _judged(self, place: Place, said: list[int], at: int, other: int) -> Score:
        pieces = self.reading.target.pieces
        before = b"".join(pieces[token] for token in said[:at]).decode("utf-8", "replace")
        gap = float(place.row[other] - place.row[said[at]])
        return Score(
            case=self.case.id,
            index=at,
            before=before[-SHOWN:],
            baseline=place.score(other),
            candidate=place.score(said[at]),
            gap=gap if np.isfinite(gap) else None,
        )

    def in_batches(
        self, said: list[int], index: int | None = None, other: int | None = None
    ) -> tuple[float, float | None]:
        """Return the largest change of a gap, and the gap at the difference, when the reply is read `many` at a time.

        The row before the first token belongs to the prompt, which both arms read in the same batches.
        """
        target, noise, gap = self.reading.target, 0.0, None
        target.begin(self.reading.prompt)
        last = len(self.looks) - 1
        # What stands behind a place in its batch has no say in its row, but the batch must be a whole one.
        padded = said + said[-1:] * self.many
        for start in range(0, last, self.many):
            for offset, row in enumerate(target.feed(padded[start : start + self.many])):
                at = start + offset + 1
                if at > last:
                    break
                look = self.looks[at]
                noise = max(noise, gap_change(look.values, row[look.tokens], range(len(look.tokens))))
                if at == index and other is not None:
                    gap = float(row[other] - row[said[at]])
        return noise, gap


def _first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return None if len(left) == len(right) else min(len(left), len(right))
