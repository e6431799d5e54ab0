"""What an attached server's answers show, and what nobody proved. Pure.

Everything here is the server's own word: it can contradict the profile, which refuses the attempt; it proves nothing.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from agent_ab.model import Json, ServerFacts
from agent_ab.server.counters import Counters

AGREEING_PROPS = ("build_info", "total_slots", "model_alias", "model_ftype", "chat_template_caps")
"""What llama-server says of itself that must not change between the attempts."""


NOTHING = Counters()


@dataclass(frozen=True, slots=True)
class Answers:
    """What a server answered to each question; None: it does not know the question."""

    models: tuple[str, ...]
    """The names that `/v1/models` lists."""
    props: Json = None
    """llama-server's `/props`."""
    slots: Json = None
    """llama-server's `/slots`."""
    version: Json = None
    """vLLM's `/version`."""
    canary: Json = None
    """The reply to one small chat completion."""
    before: Counters = NOTHING
    """Before the canary."""
    after: Counters = NOTHING


def program(answers: Answers) -> str:
    """Return which program it says it is, or an empty string."""
    if isinstance(answers.props, Mapping) and "build_info" in answers.props:
        return f"llama-server {answers.props['build_info']}"
    if isinstance(answers.version, Mapping) and answers.version.get("version"):
        return f"vLLM {answers.version['version']}"
    return ""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a server showed of its speculation."""

    drafted: int | None
    """Tokens drafted in the canary; None when none were, or when it does not say."""
    accepted: int | None
    active: bool | None
    """Whether it says that it speculates; None: it does not say."""


def shown(answers: Answers) -> Shown:
    """Return what the answers show of the server's speculation."""
    timings = _mapping(_mapping(answers.canary).get("timings"))
    drafting = answers.after.since(answers.before)
    drafted, accepted = timings.get("draft_n"), timings.get("draft_n_accepted")
    if drafted is None and drafting is not None and drafting.drafted:
        drafted, accepted = drafting.drafted, drafting.accepted
    slots = answers.slots if isinstance(answers.slots, list) and answers.slots else [{}]
    active = _mapping(slots[0]).get("speculative")
    if active is None and answers.version is not None and answers.after.finished is not None:
        # vLLM has these counters only when it speculates.
        active = answers.after.drafts is not None
    return Shown(drafted, accepted, bool(drafted) or (active if active is None else bool(active)))


def facts(declared: str, url: str, name: str, answers: Answers) -> ServerFacts:
    """Return what is known of the server at `url`; `declared` is the profile's word for its speculation, `name` the model's."""
    seen = shown(answers)
    props = _mapping(answers.props)
    template = props.get("chat_template")
    agreeing = {key: props[key] for key in AGREEING_PROPS if key in props}
    context = _mapping(props.get("default_generation_settings")).get("n_ctx")
    contradicted = seen.active is not None and seen.active != (declared != "none")
    return ServerFacts(
        argv=(),
        environment={},
        binary_sha256="",
        build=program(answers),
        model_sha256="",
        chat_template_sha256=hashlib.sha256(template.encode()).hexdigest() if isinstance(template, str) else "",
        props=agreeing
        | {"url": url, "models": list(answers.models), "model": name}
        | ({"n_ctx": context} if context else {}),
        omitted_flags=(),
        spec_type=declared,
        draft_n=seen.drafted,
        draft_n_accepted=seen.accepted,
        slots_speculative=bool(seen.active),
        log_line="",
        speculation_proven=not contradicted,
        proof=_sentence(declared, seen, contradicted),
        unproven=unproven(answers, name, seen),
    )


def unproven(answers: Answers, name: str, seen: Shown) -> tuple[str, ...]:
    """Return what nobody proved, each a clause with the server's own word for it."""
    path = _mapping(answers.props).get("model_path")
    return (
        f"which program serves ({f'it calls itself {program(answers)}' if program(answers) else 'it does not say'})",
        "its command line and environment",
        f"which model it loaded ({f'it names {path}' if path else f'it calls it {name}'})",
        "how it speculates"
        + ("" if seen.active is None else f" (it {'says that it does' if seen.active else 'says that it does not'})"),
        "that it was not restarted, changed or asked by others while the pair was played",
        "that its caches held nothing of earlier requests",
    )


def _sentence(declared: str, seen: Shown, contradicted: bool) -> str:
    drafted = (
        f"the canary drafted {seen.drafted} ({seen.accepted} accepted)"
        if seen.drafted
        else "the canary drafted nothing"
    )
    if seen.active is None:
        return f"{declared}: the server does not say whether it speculates"
    if contradicted:
        return (
            f"{declared}: contradicted, {drafted} and the server says that it"
            f" {'speculates' if seen.active else 'does not speculate'}; say in server.speculation.type what it does"
        )
    return f"{declared}: in the server's own word, {drafted}"


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}
