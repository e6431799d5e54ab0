"""The declared variable: what each may change, where that shows, and the proof that nothing else did. Pure.

A variable has a name, the settings that it covers, and every place in which a difference of those settings must show:
options of the command line, facts about the server, keys of the agent's requests, the world around the agent. What is
not listed has to be equal in both arms.
"""

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent_ab.model import Arm, Attempt, Json, ProofLine, ServerFacts
from agent_ab.nested import flatten

PARTICULARS = 3
"""Keys of a fact that are named when they differ."""
ANYTHING = "*"
"""In place of a request's keys: the requests themselves are the variable, they are not compared."""
BUDGET_KEYS = ("max_tokens", "max_completion_tokens", "n_predict")
SAMPLING_FLAGS: Mapping[str, str] = {
    "temperature": "--temp",
    "top_p": "--top-p",
    "top_k": "--top-k",
    "min_p": "--min-p",
    "repeat_penalty": "--repeat-penalty",
    "presence_penalty": "--presence-penalty",
    "frequency_penalty": "--frequency-penalty",
}
_CONFIG = ("agent.config_sha256",)
"""OpenCode's configuration file holds its budget, its effort and its prompt."""


@dataclass(frozen=True, slots=True)
class Variable:
    """What one declared variable covers, and where its difference may show."""

    settings: tuple[str, ...]
    """Dotted names of settings or of tables."""
    flags: tuple[str, ...] = ()
    """Options of the server's command line; a name that ends in `-` is a prefix."""
    facts: tuple[str, ...] = ()
    """Fields of ServerFacts."""
    props: tuple[str, ...] = ()
    """Keys of ServerFacts.props."""
    request: tuple[str, ...] = ()
    """Top-level keys of the agent's requests; `*`: all of them."""
    world: tuple[str, ...] = ()
    """Dotted names in Attempt.world."""

    def covers(self, setting: str) -> bool:
        """Return whether the setting with this dotted name belongs to the variable."""
        return any(setting == name or setting.startswith(name + ".") for name in self.settings)


def _server(key: str, *flags: str, **places: tuple[str, ...]) -> Variable:
    return Variable((f"server.{key}",), flags, **places)


VARIABLES: Mapping[str, Variable] = {
    "model": Variable(("model",), facts=("model_sha256",), props=("model_ftype",)),
    "server.speculation": _server(
        "speculation",
        "--spec-",
        # vLLM's.
        "--speculative-config",
        "--per-request-spec-decode-metrics",
        facts=("draft_sha256",),
    ),
    "server.url": Variable(
        ("server.url", "server.key_variable", "server.model_name", "server.speculation"),
        facts=("build", "chat_template_sha256", "props"),
    ),
    "server.speculation.draft": _server("speculation.draft", "--spec-draft-model", facts=("draft_sha256",)),
    "server.binary": _server("binary", facts=("binary_sha256", "build", "omitted_flags"), props=("build_info",)),
    "server.kv_type": Variable(("server.kv_type_k", "server.kv_type_v"), ("-ctk", "-ctv", "--kv-cache-dtype")),
    "server.kv_type_k": _server("kv_type_k", "-ctk"),
    "server.kv_type_v": _server("kv_type_v", "-ctv"),
    "server.batch": Variable(("server.batch", "server.ubatch"), ("-b", "-ub")),
    "server.ubatch": _server("ubatch", "-ub"),
    "server.context": _server("context", "-c", "--max-model-len", props=("n_ctx",)),
    "server.chat_template_file": _server(
        "chat_template_file",
        "--chat-template-file",
        "--chat-template",
        facts=("chat_template_sha256",),
        props=("chat_template_caps",),
    ),
    "server.reasoning_budget": _server("reasoning_budget", "--reasoning-budget"),
    "server.flash_attention": _server("flash_attention", "-fa"),
    "server.gpu_layers": _server("gpu_layers", "-ngl"),
    "server.threads": _server("threads", "-t", "-tb"),
    "server.extra_args": _server("extra_args"),
    "server.env": _server("env", facts=("environment",)),
    "agent": Variable(
        (*(f"agent.{key}" for key in ("kind", "protocol", "binary", "version", "slim", "command", "env", "mounts")),),
        request=(ANYTHING,),
        world=("agent",),
    ),
    "agent.prompt": Variable(("agent.prompt",), request=("messages",), world=_CONFIG),
    "agent.reasoning_effort": Variable(
        ("agent.reasoning_effort",), request=("reasoning_effort", "reasoning"), world=_CONFIG
    ),
    "agent.response_budget": Variable(("agent.response_budget",), request=BUDGET_KEYS, world=_CONFIG),
    "agent.max_turns": Variable(("agent.max_turns",), world=_CONFIG),
    # The requests may not differ: it shows what a midnight between the arms does.
    "agent.clock": Variable(("agent.clock",), world=("agent.clock", "agent.environment.FAKETIME")),
    "agent.time_limit_s": Variable(("agent.time_limit_s",)),
    "sampling": Variable(
        ("sampling",), tuple(SAMPLING_FLAGS.values()), props=("sampling",), request=tuple(SAMPLING_FLAGS)
    ),
}
"""Every variable that a profile can declare."""
_IDENTICAL = (
    "environment",
    "binary_sha256",
    "build",
    "model_sha256",
    "draft_sha256",
    "chat_template_sha256",
    "props",
    "omitted_flags",
)
"""What ServerFacts must agree in, unless the variable says otherwise."""
_REMEDY: Mapping[str, str] = {
    "chat_template_sha256": " (name one server.chat_template_file for both arms)",
}


def named(variable: str) -> Variable:
    """Return the declared variable; a name that we do not know covers itself and may show nowhere else."""
    return VARIABLES.get(variable) or Variable((variable,))


def first_digest(request: Json, keys: Iterable[str]) -> str:
    """Return the sha256 of a request as it reached the server, without the variable's own `keys`.

    proxy/ledger.py computes the same.
    """
    rest = {key: value for key, value in request.items() if key not in set(keys)}
    return hashlib.sha256(json.dumps(rest, ensure_ascii=True, separators=(",", ":")).encode()).hexdigest()


def one_variable(baseline: Attempt, candidate: Attempt, name: str) -> ProofLine:
    """Return the proof that the two servers and settings differ in the declared variable only."""
    left, right = baseline.server, candidate.server
    assert left and right
    variable = named(name)
    drift = [
        field + (_REMEDY.get(field) or _particulars(own, other))
        for field in _IDENTICAL
        if field not in variable.facts
        and (own := _fact(left, right, field, variable)) != (other := _fact(right, left, field, variable))
    ]
    if _command_line(left, right, baseline, variable) != _command_line(right, left, candidate, variable):
        drift.append("command line")
    if _rest(baseline.settings, variable) != _rest(candidate.settings, variable):
        drift.append("settings")
    if drift:
        return ProofLine("one variable", False, f"the arms also differ in: {', '.join(drift)}")
    if _lost(baseline, candidate, variable):
        return ProofLine(
            "one variable", False, f"{name} differs in the settings, and nothing of it reached the server: no arm"
        )
    rest = "".join(f"; {line}" for line in _left_to_defaults(left, right, variable)) or "; all else is equal"
    return ProofLine("one variable", True, f"{name}: candidate has {_change(baseline, candidate)}{rest}")


def _lost(baseline: Attempt, candidate: Attempt, variable: Variable) -> bool:
    """Return whether the arms' settings differ in what a server must show, and both servers show the same."""
    left, right = baseline.server, candidate.server
    assert left and right
    told = variable.covers("server.extra_args") or bool(variable.flags or variable.facts)
    facts = any(getattr(left, field) != getattr(right, field) for field in variable.facts)
    return told and differ(baseline, candidate) and left.argv == right.argv and not facts


def differ(baseline: Attempt, candidate: Attempt) -> bool:
    """Return whether there is any difference of settings: an A/A pair has none."""
    return baseline.settings != candidate.settings


def same_world(world: Mapping[str, Json], variable: str) -> dict[str, Json]:
    """Return what must be equal of the world around an agent: all but what the variable changes there."""
    names = named(variable).world

    def rest(value: Json, prefix: str) -> Json:
        if not isinstance(value, Mapping):
            return value
        inner = {key: f"{prefix}.{key}" if prefix else str(key) for key in value}
        return {key: rest(value[key], path) for key, path in inner.items() if path not in names}

    kept: dict[str, Json] = rest(world, "")
    return kept


def _fact(own: ServerFacts, other: ServerFacts, field: str, variable: Variable) -> Json:
    """Return a fact without what the variable changes in it; of two builds, what both speak of."""
    value, theirs = getattr(own, field), getattr(other, field)
    builds = "binary_sha256" in variable.facts
    if field == "props":
        kept = {key: inner for key, inner in value.items() if key not in variable.props}
        return {key: _common(inner, theirs.get(key)) for key, inner in kept.items()} if builds else kept
    # Another binary may need its libraries to be found elsewhere.
    if field == "environment" and builds:
        return {key: inner for key, inner in value.items() if key != "LD_LIBRARY_PATH"}
    return value


def _particulars(own: Json, other: Json) -> str:
    """Return which keys of a fact differ, with both values; empty for a fact without keys."""
    if not isinstance(own, Mapping) or not isinstance(other, Mapping):
        return ""
    left, right = flatten(own), flatten(other)
    keys = sorted(key for key in {*left, *right} if left.get(key) != right.get(key))
    told = [f"{key}: {_short(left.get(key))} and {_short(right.get(key))}" for key in keys[:PARTICULARS]]
    return f" ({', '.join([*told, *(['...'] if len(keys) > PARTICULARS else [])])})"


def _common(value: Json, other: Json) -> Json:
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return {key: inner for key, inner in value.items() if key in other}
    return value


def _command_line(own: ServerFacts, other: ServerFacts, attempt: Attempt, variable: Variable) -> list[str]:
    """Return the command line without what the variable changes; of two builds, without what only one knows."""
    argv = own.argv
    if variable.covers("server.extra_args"):
        argv = argv[: len(argv) - len(attempt.settings.get("server.extra_args") or ())]
    flags = variable.flags + (other.omitted_flags if "omitted_flags" in variable.facts else ())
    exact, prefixes = set(flags), tuple(flag for flag in flags if flag.endswith("-"))
    kept: list[str] = []
    skipping = False
    for word in argv:
        if word.startswith("--") or (word.startswith("-") and not word[1:2].isdigit()):
            skipping = word in exact or (bool(prefixes) and word.startswith(prefixes))
        if not skipping:
            kept.append(word)
    return kept


def _left_to_defaults(left: ServerFacts, right: ServerFacts, variable: Variable) -> Iterable[str]:
    """Yield what two builds cannot be given alike: options of one that the other lacks, and works by its own default."""
    if "omitted_flags" not in variable.facts:
        return
    for arm, own, other in ((Arm.BASELINE, left, right), (Arm.CANDIDATE, right, left)):
        if lacking := [flag for flag in own.omitted_flags if flag in other.argv]:
            yield (
                f"the {arm}'s build lacks {', '.join(lacking)}, which the other arm was given: there its own default holds,"
                " a part of what the binary changes"
            )


def _rest(settings: Mapping[str, Json], variable: Variable) -> dict[str, Json]:
    return {name: value for name, value in settings.items() if not variable.covers(name)}


def _change(baseline: Attempt, candidate: Attempt) -> str:
    """Return what the candidate has instead, in words: its options, or what no option shows."""
    assert baseline.server and candidate.server
    words = " ".join(_added(baseline.server.argv, candidate.server.argv))
    told = [words] if words else []
    for field, what in (("binary_sha256", "llama-server"), ("model_sha256", "model"), ("draft_sha256", "draft")):
        old, new = getattr(baseline.server, field), getattr(candidate.server, field)
        if old != new:
            told.append(f"{what} {new[:12] or 'none'} instead of {old[:12] or 'none'}")
    if not told:
        left, right = baseline.settings, candidate.settings
        changed = sorted(key for key in {*left, *right} if left.get(key) != right.get(key))
        told = [f"{key} = {_short(right.get(key))} instead of {_short(left.get(key))}" for key in changed]
    return ", ".join(told) or "nothing"


def _short(value: Json) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _added(left: tuple[str, ...], right: tuple[str, ...]) -> list[str]:
    matcher = difflib.SequenceMatcher(a=left, b=right, autojunk=False)
    words: list[str] = []
    for tag, _, _, start, end in matcher.get_opcodes():
        if tag in ("insert", "replace"):
            # A flag whose value changed is named with it.
            first = start - 1 if start and not right[start].startswith("-") else start
            words += right[first:end]
    return words
