"""Is a method lossless? Both arms answer the same recorded requests; an independent judge reads every difference."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agent_ab.config import ArmSettings, Profile, Sampling, Speculation
from agent_ab.divergence.reply_diff import compare
from agent_ab.engine import engine
from agent_ab.errors import ApparatusError, UserError
from agent_ab.judge import judge, symptoms
from agent_ab.judge.case import Case, Score
from agent_ab.judge.classes import Class, Judged, Threshold, classify, threshold
from agent_ab.judge.symptoms import Symptoms
from agent_ab.lossless import distribution, replay
from agent_ab.lossless.distribution import Distribution
from agent_ab.lossless.replay import Replayed
from agent_ab.model import Arm, Event, Observer, ServerFacts, Step, Task
from agent_ab.models import models
from agent_ab.requests import Recorded, forced, pinned
from agent_ab.workbench import ArmParts

N_MAX_DEFAULT = 3
"""llama-server's own `--spec-draft-n-max`."""
POSITIONS = 4
"""Tokens of each repeated reply: the first, which is never drafted, and three that are verified."""
REPEATED = 4
"""Requests that are repeated for the distribution test."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of both arms."""

    requests: tuple[Recorded, ...]
    temperatures: tuple[float, ...] = ()
    """Each request is sent once with each; empty: as recorded, or as the profile says."""
    seed: int = 4242
    max_tokens: int | None = None
    """Cap of each reply; None: as the requests say."""
    repeats: int = 0
    """Replies a request, each with a seed of its own, for the test of distributions; 0: no test."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as both arms get it."""

    request: Recorded
    temperature: float
    body: Mapping[str, object]

    @property
    def name(self) -> str:
        """Return the id of the pair of answers."""
        return f"{self.request.id}@{self.temperature:g}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One request with one temperature, answered by both arms."""

    id: str
    kind: str
    temperature: float
    judged: Judged
    path: str
    """Where the texts part: `content`, `reasoning`, a tool call's name or arguments, `error`; empty when they do not."""


@dataclass(frozen=True, slots=True)
class Lossless:
    """What came of it."""

    methods: Mapping[Arm, str]
    """Each arm's `--spec-type`, with what was said about it."""
    model: str
    build: str
    libraries: str
    """Whose shared libraries the judge used; empty: the server's own."""
    threshold: Threshold
    comparisons: tuple[Comparison, ...]
    symptoms: Mapping[Arm, Symptoms]
    distribution: Distribution | None

    @property
    def faults(self) -> tuple[Comparison, ...]:
        """Return the comparisons in which something was said that the target would not say."""
        return tuple(c for c in self.comparisons if c.judged.fault)

    @property
    def differences(self) -> tuple[Comparison, ...]:
        """Return the comparisons whose replies differ."""
        return tuple(c for c in self.comparisons if c.judged.kind is not None)

    @property
    def undecided(self) -> bool:
        """Return whether there are differences and the judge could say nothing of any of them."""
        found = [c.judged.kind for c in self.differences]
        return bool(found) and all(kind is Class.NOT_JUDGED for kind in found)

    @property
    def lossy(self) -> bool:
        """Return whether a fault was found: a token outside the support, or another distribution."""
        return bool(self.faults) or bool(self.distribution and self.distribution.different)


def prepare(profile: Profile, task: Task | None, observer: Observer) -> dict[Arm, ArmParts]:
    """Find or make each arm's engine and model. Raises UserError."""
    if not profile.variable.startswith("server.speculation"):
        raise UserError(
            f"profile {profile.name}: its variable is {profile.variable}: only of speculation can it be asked whether it"
            " keeps what the model says; name a profile whose variable is server.speculation"
        )
    return {arm: parts(profile.arm(arm), task, observer) for arm in Arm}


def parts(settings: ArmSettings, task: Task | None, observer: Observer) -> ArmParts:
    """Find or make one arm's engine and model. Raises UserError."""
    speculation = settings.server.speculation
    model = models.with_draft(models.resolve(settings.model, task, observer), speculation, observer)
    models.require(model, speculation)
    found = engine.find(settings.server.binary, observer)
    engine.require(found, speculation)
    return ArmParts(settings, found, model)


def measure(arms: Mapping[Arm, ArmParts], question: Question, folder: Path, observer: Observer) -> Lossless:
    """Ask both arms, one after the other, then judge when their servers are gone; the servers' logs go to `folder`.

    Raises ApparatusError.
    """
    asked = asked_of(question, arms[Arm.BASELINE].settings.sampling)
    answers = {arm: _ask(arms[arm], arm, asked, repeated_of(question, asked, arm), folder, observer) for arm in Arm}
    left, right = answers[Arm.BASELINE], answers[Arm.CANDIDATE]
    bench = judge_bench(arms)
    comparisons, limit = compare_replies(asked, left.replies, right.replies, bench, observer)
    return Lossless(
        methods={arm: answers[arm].facts.proof for arm in Arm},
        model=f"{bench.model.path.name}, sha256 {bench.model.sha256[:12]}",
        build=left.facts.build,
        libraries=_foreign_libraries(bench.engine),
        threshold=limit,
        comparisons=comparisons,
        symptoms={
            arm: symptoms.count(
                [r.exchange for r in answers[arm].replies], longest_draft(arms[arm].settings.server.speculation)
            )
            for arm in Arm
        },
        distribution=_distribution(left, right) if question.repeats else None,
    )


def compare_replies(
    asked: Sequence[Asked], left: Sequence[Replayed], right: Sequence[Replayed], bench: judge.Bench, observer: Observer
) -> tuple[tuple[Comparison, ...], Threshold]:
    """Have every difference between two servers' replies to the same requests judged; no server may need the memory."""
    scores = _scores(left, right, bench, observer)
    limit = threshold(scores.values(), bench.n_max + 1)
    found = (_comparison(*each, scores, limit) for each in zip(asked, left, right, strict=True))
    return tuple(found), limit


def judge_bench(arms: Mapping[Arm, ArmParts]) -> judge.Bench:
    """Return what the judge judges with: the baseline's engine and model, and the candidate's longest draft."""
    baseline = arms[Arm.BASELINE]
    if not isinstance(baseline.engine, engine.Engine):
        kind = baseline.settings.server.engine
        raise UserError(f"the judge reads a GGUF with llama.cpp's own libraries: server.engine = {kind!r} has neither")
    longest = longest_draft(arms[Arm.CANDIDATE].settings.server.speculation)
    return judge.Bench(baseline.engine, baseline.settings, baseline.model, longest)


def longest_draft(speculation: Speculation) -> int:
    """Return the most tokens that a speculation drafts at once; a verification batch has one more."""
    found = [0]
    for kind in speculation.type.split(","):
        if kind.startswith("draft-"):
            found.append(speculation.n_max or N_MAX_DEFAULT)
        elif kind == "ngram-mod":
            found.append(speculation.ngram_max or engine.NGRAM_OPTIONS[kind]["ngram_max"][1])
        elif kind in engine.NGRAM_OPTIONS:
            found.append(speculation.ngram_draft or engine.NGRAM_OPTIONS[kind]["ngram_draft"][1])
        elif kind != "none":
            found.append(N_MAX_DEFAULT)
    return max(found)


@dataclass(frozen=True, slots=True)
class _Answers:
    """What one arm answered."""

    facts: ServerFacts
    replies: tuple[Replayed, ...]
    repeated: Mapping[str, tuple[Replayed, ...]]


def asked_of(question: Question, sampling: Sampling) -> tuple[Asked, ...]:
    """Return each request with each temperature, pinned as both arms get it."""
    found = []
    for request in question.requests:
        body = pinned(request.body, sampling, question.seed)
        if question.max_tokens is not None:
            body |= {"max_tokens": min(question.max_tokens, body.get("max_tokens") or question.max_tokens)}
        for temperature in question.temperatures or (body["temperature"],):
            found.append(Asked(request, float(temperature), {**body, "temperature": temperature}))
    return tuple(found)


def repeated_of(question: Question, asked: Sequence[Asked], arm: Arm) -> Mapping[str, list[replay.Request]]:
    """Return the requests of the test of distributions; no seed is used in both arms, for equal ones give equal replies."""
    if not question.repeats:
        return {}
    warm = [one for one in asked if one.temperature > 0] or [one for one in asked]
    chosen = list({one.request.id: one for one in warm}.values())[:REPEATED]
    first = 1 + (question.repeats * len(chosen) if arm is Arm.CANDIDATE else 0)
    found: dict[str, list[replay.Request]] = {}
    for number, one in enumerate(chosen):
        temperature = one.temperature or 1.0
        seeds = range(first + number * question.repeats, first + (number + 1) * question.repeats)
        short = {**one.body, "temperature": temperature, "max_tokens": POSITIONS}
        found[one.request.id] = [(one.request.id, {**short, "seed": seed}) for seed in seeds]
    return found


def _ask(
    of: ArmParts,
    arm: Arm,
    asked: Sequence[Asked],
    repeated: Mapping[str, list[replay.Request]],
    folder: Path,
    observer: Observer,
) -> _Answers:
    total = len(asked) + sum(map(len, repeated.values()))
    with replay.serving(of, arm, folder / f"{arm}.log", observer) as (client, facts):
        replies = replay.replay(client, [(one.name, one.body) for one in asked], _progress(observer, arm, 0, total))
        done = len(asked)
        more: dict[str, tuple[Replayed, ...]] = {}
        for name, requests in repeated.items():
            more[name] = replay.replay(client, requests, _progress(observer, arm, done, total))
            done += len(requests)
    return _Answers(facts, replies, more)


def _progress(observer: Observer, arm: Arm, done: int, total: int) -> Callable[[int], None]:
    return lambda count: observer(Event(None, None, f"{arm}: {done + count} of {total} replies"))


def _scores(
    left: Sequence[Replayed], right: Sequence[Replayed], bench: judge.Bench, observer: Observer
) -> Mapping[str, Score]:
    """Have every difference judged, and equal replies read until the threshold stands on enough places."""
    differing: list[Case] = []
    equal: list[Case] = []
    for mine, theirs in zip(left, right, strict=True):
        if mine.raw and theirs.raw and not forced(mine.exchange.request):
            case = Case(
                id=mine.id,
                prompt=mine.raw.prompt,
                prompt_tokens=mine.raw.prompt_tokens,
                settings=mine.raw.settings,
                baseline=mine.raw.said,
                candidate=theirs.raw.said,
            )
            (equal if mine.raw.tokens == theirs.raw.tokens else differing).append(case)
    places = sum(len(case.candidate.tokens or ()) for case in differing)
    # Where nothing differs there is nothing to judge, and no model is loaded for it.
    for case in equal if differing else ():
        if places >= judge.PLACES:
            break
        differing.append(case)
        places += len(case.candidate.tokens or ())
    with tempfile.TemporaryDirectory(prefix="agent-ab-judge-") as scratch:
        found = judge.judge(differing, bench, Path(scratch), observer)
    return {score.case: score for score in found}


def _comparison(
    asked: Asked, mine: Replayed, theirs: Replayed, scores: Mapping[str, Score], limit: Threshold
) -> Comparison:
    found = compare(mine.exchange, theirs.exchange)
    return Comparison(
        id=asked.request.id,
        kind=asked.request.kind,
        temperature=asked.temperature,
        judged=_judged(mine, theirs, found is not None, scores, limit),
        path=found.path if found else "",
    )


def _judged(mine: Replayed, theirs: Replayed, differ: bool, scores: Mapping[str, Score], limit: Threshold) -> Judged:
    if mine.id in scores:
        return classify(scores[mine.id], limit)
    if mine.raw and theirs.raw and mine.raw.tokens == theirs.raw.tokens:
        return Judged(Score(mine.id, scanned=0), None)
    if not differ:
        return Judged(Score(mine.id), None)
    if reason := forced(mine.exchange.request):
        return Judged(Score(mine.id, reason), Class.NOT_JUDGED, reason=reason)
    silent = [
        f"{arm}: {reply.exchange.error or 'no tokens'}"
        for arm, reply in zip(Arm, (mine, theirs), strict=True)
        if not reply.raw
    ]
    reason = f"the server does not tell the reply's tokens ({'; '.join(silent)})"
    return Judged(Score(mine.id, reason), Class.NOT_JUDGED, reason=reason)


def _distribution(left: _Answers, right: _Answers) -> Distribution:
    arms = [{name: _tokens(replies) for name, replies in side.repeated.items()} for side in (left, right)]
    return distribution.compare(arms[0], arms[1], POSITIONS, np.random.default_rng(0))


def _tokens(replies: Sequence[Replayed]) -> list[tuple[int, ...]]:
    silent = next((reply for reply in replies if reply.raw is None), None)
    if silent is not None:
        why = silent.exchange.error or "this server does not tell them"
        raise ApparatusError(Step.SERVER, f"a repeated reply to {silent.id} came without its tokens: {why}")
    return [reply.raw.tokens[:POSITIONS] for reply in replies if reply.raw]


def _foreign_libraries(found: engine.Engine) -> str:
    folder = judge.libraries(found)
    return (
        ""
        if folder in (None, found.binary.parent)
        else f"the judge used our own build's libraries, not {found.binary.parent}'s"
    )
