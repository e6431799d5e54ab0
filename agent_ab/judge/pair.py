"""Have the judge read where a played pair's replies part.

Only texts were recorded, so the judge finds tokens for them (`text.py`); what it cannot lay over the model's tokens it
does not judge. `agent-ab lossless PAIR` asks the servers again, for the tokens themselves.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from agent_ab.divergence import parting
from agent_ab.divergence.parting import Divergence, Kind, Where
from agent_ab.judge import judge, recall, symptoms
from agent_ab.judge.case import Case, Said, Score
from agent_ab.judge.classes import classify, threshold
from agent_ab.judge.judgement import SCHEMA, Judgement
from agent_ab.judge.raw_text import Style, guess, styles, whole
from agent_ab.judge.symptoms import Symptoms
from agent_ab.model import Arm, Attempt, Exchange, Observer, Pair
from agent_ab.paths import RunPaths
from agent_ab.requests import forced

AGAIN = "`agent-ab lossless PAIR` asks the servers for the tokens themselves"


def of_pair(
    pair: Pair,
    run: RunPaths,
    bench: judge.Bench | None,
    drafts: Mapping[Arm, int],
    observer: Observer,
    servers_run: bool = False,
) -> Judgement:
    """Return what is to be said of `pair`, whose logs came with bodies; `drafts`: each arm's longest draft.

    `bench` is None where no GGUF was served: the judge reads nothing else. `servers_run`: its servers still run, so that
    no second copy of the model is loaded beside them.
    """
    counted = {arm: _symptoms(pair.attempt(arm), drafts[arm]) for arm in Arm}
    found = parting.from_json(pair.divergence).raw if pair.divergence is not None else None
    if found is None or found.kind is not Kind.MODEL:
        return Judgement(SCHEMA, None, None, counted)
    case = _case(pair, found, run, servers_run)
    if bench is None:
        score = Score(pair.name, "no GGUF was served by a llama-server of ours, and the judge reads nothing else")
    elif isinstance(case, str):
        score = Score(pair.name, case)
    else:
        with tempfile.TemporaryDirectory(prefix="agent-ab-judge-") as scratch:
            (score,) = judge.judge((case,), bench, Path(scratch), observer)
    limit = threshold((score,), max(drafts.values()) + 1)
    return Judgement(SCHEMA, classify(score, limit), limit, counted)


def _symptoms(attempt: Attempt, n_max: int) -> Symptoms:
    return symptoms.count(attempt.log.exchanges if attempt.log else (), n_max or None)


def _case(pair: Pair, found: Divergence, run: RunPaths, servers_run: bool) -> Case | str:
    """Return the difference as a case, or why it is none that can be judged."""
    if not pair.variable.startswith("server.speculation"):
        return f"the variable is {pair.variable}: the arms owe each other no equal replies"
    if servers_run:
        return f"the servers live on after this pair, and no second copy of the model is loaded beside them; {AGAIN}"
    exchange = found.exchange
    if found.where is not Where.REPLY or exchange is None:
        return "the difference is not in a reply"
    sides = {arm: _exchange(pair.attempt(arm), exchange) for arm in Arm}
    left, right = sides[Arm.BASELINE], sides[Arm.CANDIDATE]
    if left is None or right is None:
        return "an exchange log has no such exchange"
    if found.path in ("error", "finish_reason"):
        return f"what both wrote is equal as far as it was recorded, and only the ends differ; {AGAIN}"
    if reason := forced(left.request):
        return reason
    recalled = recall.read(run.attempt(pair.id, Arm.BASELINE).prompts, exchange)
    if isinstance(recalled, str):
        return recalled
    guesses = styles(left, right)
    return Case(
        id=pair.name,
        prompt=recalled.prompt,
        prompt_tokens=left.timings.prompt_n if left.timings and not left.timings.cache_n else None,
        settings=recalled.settings,
        baseline=_said(left, guesses),
        candidate=_said(right, guesses),
    )


def _exchange(attempt: Attempt, index: int) -> Exchange | None:
    exchanges = attempt.log.exchanges if attempt.log else ()
    return exchanges[index] if index < len(exchanges) else None


def _said(exchange: Exchange, styles_: tuple[Style, ...]) -> Said:
    return Said(None, whole(exchange), tuple(guess(exchange, style) for style in styles_))
