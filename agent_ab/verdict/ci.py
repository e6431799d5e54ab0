"""A verdict for GitHub: a Markdown summary and annotations, untrusted text made harmless. Pure."""

from agent_ab.verdict.verdict import Decision, Verdict
from agent_ab.verdict.view import figures, p_value
from agent_ab.wording import counted, markdown_code, plain_line

ANNOTATIONS = 10
"""GitHub shows no more of a kind for one step."""
LONGEST = 200
_LEVEL = {
    Decision.ADOPT: "notice",
    Decision.INCONCLUSIVE: "warning",
    Decision.REJECT: "error",
    Decision.INVALID: "error",
}


def markdown(verdict: Verdict) -> str:
    """Return the verdict as Markdown, for a step's summary or a comment."""
    lines = [
        f"## agent-ab: {verdict.decision.value}",
        "",
        f"{markdown_code(verdict.run)}, {verdict.kind} of {markdown_code(verdict.profile)}, variable"
        f" {markdown_code(verdict.variable)}",
        "",
        *(f"- {_escaped(line)}" for line in verdict.reasons),
    ]
    if verdict.warnings:
        lines += ["", "**Besides**", "", *(f"- {_escaped(line)}" for line in verdict.warnings)]
    lines += ["", "| | |", "|---|---|", *(f"| {label} | {_escaped(line)} |" for label, line in figures(verdict))]
    if verdict.checks:
        lines += ["", "| check, as observed | broken | fixed | pairs | Holm p | |", "|---|---|---|---|---|---|"]
        for row in verdict.checks:
            word = "**regressed**" if row.regressed else "observed"
            name = markdown_code(f"{row.task}/{row.check}", LONGEST)
            lines.append(f"| {name} | {row.broken} | {row.fixed} | {row.pairs} | {p_value(row.p_holm)} | {word} |")
    lines += ["", f"Policy {verdict.policy_sha256[:12]}: " + ", ".join(f"{k} {v}" for k, v in verdict.policy.items())]
    return "\n".join(lines) + "\n"


def annotations(verdict: Verdict) -> tuple[str, ...]:
    """Return workflow commands: the verdict, then the checks that flipped, ten at most."""
    said = [_command(_LEVEL[verdict.decision], f"agent-ab: {verdict.decision.value}", verdict.reasons[0])]
    for row in verdict.checks:
        name = f"{row.task}/{row.check}"
        facts = f"broken in {row.broken} and fixed in {row.fixed} of {counted(row.pairs, 'pair')}"
        level, title = ("error", "regressed") if row.regressed else ("notice", "observed flip")
        said.append(_command(level, f"{title}: {name}", facts))
    return tuple(said[:ANNOTATIONS])


def _command(level: str, title: str, message: str) -> str:
    return f"::{level} title={_property(plain_line(title, LONGEST))}::{_data(plain_line(message))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


_MARKUP = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|~@$"})


def _escaped(line: str) -> str:
    """Return a sentence with everything that Markdown or GitHub would act on taken as it stands."""
    # A mention or a link must not come out of a name that somebody chose.
    return (
        plain_line(line)
        .translate(_MARKUP)
        .replace("\\@", "@\N{ZERO WIDTH SPACE}")
        .replace("://", ":\N{ZERO WIDTH SPACE}//")
    )
