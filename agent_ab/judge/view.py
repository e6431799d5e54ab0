"""What the judge says of a pair, as renderables for a terminal of 100 columns and as data; prints nothing itself. Pure."""

from collections.abc import Mapping

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agent_ab.judge import judgement, symptoms
from agent_ab.judge.classes import Class, Threshold
from agent_ab.judge.judgement import Judgement
from agent_ab.judge.symptoms import Symptoms
from agent_ab.model import Arm, Json, Pair

STYLE = {
    Class.NEAR_TIE: "green",
    Class.SAMPLING: "green",
    Class.OUTSIDE: "bold red",
    Class.NOT_JUDGED: "yellow",
    None: "dim",
}


def threshold_sentence(limit: Threshold) -> str:
    """Return how the near-tie threshold came about."""
    if not limit.positions:
        return "the near-tie threshold was not measured: there was no difference that the judge could read"
    return (
        f"near ties lie within {limit.nats:.3f} nat: the largest change of a logit gap between batches of 1 and of"
        f" {limit.many}, at {limit.positions} places"
    )


def symptoms_table(of_arms: Mapping[Arm, Symptoms]) -> RenderableType:
    """Return both arms' symptoms side by side."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("symptoms")
    for arm in Arm:
        table.add_column(arm.value)
    told = {arm: symptoms.rows(of_arms[arm]) for arm in Arm}
    for label in told[Arm.BASELINE]:
        cells = [told[arm][label] for arm in Arm]
        table.add_row(label, *cells)
    return table


def of_pair(pair: Pair) -> Judgement | None:
    """Return what is kept of a pair's judgement; None for pairs from before there was one."""
    return None if pair.judgement is None else judgement.from_json(pair.judgement)


def judgement_view(pair: Pair) -> list[RenderableType]:
    """Return the judge's words on a pair and its symptoms; nothing for a pair that was never judged."""
    found = of_pair(pair)
    if found is None:
        return []
    parts: list[RenderableType] = []
    if found.judged is not None and found.threshold is not None:
        parts += [Text("judge", style="bold"), Text(f"  {found.sentence}", style=STYLE[found.judged.kind])]
        if found.judged.kind is not Class.NOT_JUDGED:
            parts.append(Text(f"  {threshold_sentence(found.threshold)}", style="dim"))
        parts.append(Text())
    return [*parts, symptoms_table(found.symptoms)]


def judgement_data(pair: Pair) -> Json:
    """Return `judgement_view` as data: the class, the sentence, both arms' symptoms; None when it was never judged."""
    found = of_pair(pair)
    if found is None:
        return None
    return {
        "class": found.judged.kind.value if found.judged and found.judged.kind else None,
        "sentence": found.sentence,
        "threshold": threshold_sentence(found.threshold) if found.threshold else "",
        "symptoms": {arm.value: dict(symptoms.rows(found.symptoms[arm])) for arm in Arm},
    }
