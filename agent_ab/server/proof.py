"""Prove that a started server is the one that was asked for, and that it speculates as declared."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from agent_ab.config import ArmSettings
from agent_ab.engine.engine import Engine
from agent_ab.errors import ApparatusError
from agent_ab.model import Json, ServerFacts, Step
from agent_ab.models.models import Model
from agent_ab.server import log as server_log
from agent_ab.server.command import Command

CANARY = "Repeat these words: one two three four five six seven eight nine ten."
CANARY_TOKENS = 32
CANARY_SEED = 1
CONTEXT_STEP = 256
"""llama.cpp rounds a context size up to a multiple of this."""
LOG_LAG_S = 2.0
"""The server's log is written by a thread of its own, shortly after the fact."""
AGREEING_PROPS = (
    "build_info",
    "total_slots",
    "model_alias",
    "model_ftype",
    "modalities",
    "chat_template_caps",
    "bos_token",
    "eos_token",
)
"""What /props must say of both arms; it does not tell the speculation, and its `media_marker` is random."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a server was started with."""

    engine: Engine
    settings: ArmSettings
    model: Model
    command: Command
    environment: Mapping[str, str]
    """Without secrets."""
    log: Path


@dataclass(frozen=True, slots=True)
class Seen:
    """What a server showed of its speculation."""

    predicted_n: int
    draft_n: int | None
    draft_n_accepted: int | None
    slots_speculative: bool
    log_types: tuple[str, ...]
    log_line: str
    sampling: Mapping[str, Json]
    """The canary's `generation_settings`: what the sampler was really given."""
    error: str
    """Why the canary has no answer, or empty."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether the declared speculation was shown, and by what."""

    proven: bool
    sentence: str


def prove(client: httpx.Client, asked: Asked) -> ServerFacts:
    """Return what the server shows about itself after one canary request.

    Raises ApparatusError when another server answers, or this one has other sizes than asked. A speculation that is not
    shown is no error here: it is in the facts, and makes the attempt INVALID.
    """
    props = _get(client, "/props")
    _require_identity(props, asked)
    slots = _get(client, "/slots")
    seen = _canary(client, asked, bool(slots[0].get("speculative")))
    declared = asked.settings.server.speculation.type
    judgement = judge(declared, seen)
    template = str(props.get("chat_template", ""))
    agreeing = {name: props[name] for name in AGREEING_PROPS if name in props}
    return ServerFacts(
        argv=asked.command.comparable,
        environment=asked.environment,
        binary_sha256=asked.engine.sha256,
        build=str(props.get("build_info", asked.engine.build)),
        model_sha256=asked.model.sha256,
        chat_template_sha256=hashlib.sha256(template.encode()).hexdigest(),
        props=agreeing | {"n_ctx": _n_ctx(props), "sampling": dict(seen.sampling)},
        omitted_flags=asked.command.omitted,
        spec_type=declared,
        draft_n=seen.draft_n,
        draft_n_accepted=seen.draft_n_accepted,
        slots_speculative=seen.slots_speculative,
        log_line=seen.log_line,
        speculation_proven=judgement.proven,
        proof=judgement.sentence,
        draft_sha256=asked.model.draft.sha256 if asked.model.draft else "",
    )


def judge(declared: str, seen: Seen) -> Judgement:
    """Compare the declared `--spec-type` with what was seen.

    Model-drafted types must have drafted in the canary; n-gram types, which find nothing to draft in a short text, are
    shown by /slots and the log; `none` must show no trace of speculation at all.
    """
    if seen.error:
        return Judgement(False, f"{declared}: not proven, the canary request failed: {seen.error}")
    drafted = (
        "drafted nothing" if seen.draft_n is None else f"drafted {seen.draft_n} ({seen.draft_n_accepted} accepted)"
    )
    shown = (
        f"the canary {drafted} in {seen.predicted_n} tokens,"
        f" /slots says speculative {str(seen.slots_speculative).lower()},"
        f" the log says {seen.log_line or 'nothing of speculation'}"
    )
    kinds = [kind.strip() for kind in declared.split(",")]
    missing = []
    if kinds == ["none"]:
        if seen.draft_n is not None or seen.slots_speculative or seen.log_types:
            missing.append("no speculation")
    elif seen.predicted_n <= 2:
        missing.append("an answer of more than 2 tokens")
    for kind in kinds:
        if kind.startswith("draft-") and not seen.draft_n:
            missing.append(f"drafts by {kind}")
        elif kind.startswith("ngram-") and not (seen.slots_speculative and kind in seen.log_types):
            missing.append(f"{kind} in the log and /slots")
    return Judgement(not missing, f"{declared}: {f'not proven, missing {missing[0]}; ' if missing else ''}{shown}")


def _require_identity(props: Mapping[str, Json], asked: Asked) -> None:
    path, wanted = str(props.get("model_path", "")), asked.model.path.absolute()
    faults = []
    if "role" in props:
        faults.append("the server is a router without a model of its own")
    elif not path or Path(path).resolve() != wanted.resolve():
        faults.append(f"another server answers: its model is {path or 'not named'}, not {wanted}")
    build = props.get("build_info")
    if asked.engine.build != "unknown" and build is not None and build != asked.engine.build:
        faults.append(f"another build answers: {build}, not {asked.engine.build}")
    if props.get("total_slots", 1) != 1:
        faults.append(f"the server has {props['total_slots']} slots, not 1")
    context = asked.settings.server.context
    rounded = -(-context // CONTEXT_STEP) * CONTEXT_STEP
    if _n_ctx(props) not in (context, rounded):
        faults.append(f"the server's context is {_n_ctx(props)}, not server.context = {context}")
    if faults:
        raise ApparatusError(Step.SERVER, faults[0], asked.log)


def _n_ctx(props: Mapping[str, Json]) -> int:
    return int(props.get("default_generation_settings", {}).get("n_ctx", 0))


def _get(client: httpx.Client, path: str) -> Json:
    response = client.get(path)
    response.raise_for_status()
    return response.json()


def _canary(client: httpx.Client, asked: Asked, slots_speculative: bool) -> Seen:
    """Generate once through /completion: it echoes the sampler's settings and parses no chat format.

    Only /v1/chat/completions is the agent's, so this is nobody's exchange; with the prompt cache off it leaves nothing.
    """
    body = {
        "prompt": _prompt(client),
        "n_predict": CANARY_TOKENS,
        "temperature": 0,
        "seed": CANARY_SEED,
        "cache_prompt": False,
    }
    response = client.post("/completion", json=body)
    error, answer = "", {}
    if response.status_code == httpx.codes.OK:
        answer = response.json()
    else:
        error = f"HTTP {response.status_code}: {response.text[:200]}"
    text = _settled_log(asked.log)
    timings = answer.get("timings", {})
    sampling = {k: v for k, v in answer.get("generation_settings", {}).items() if not k.startswith("speculative.")}
    return Seen(
        predicted_n=int(timings.get("predicted_n", 0)),
        draft_n=timings.get("draft_n"),
        draft_n_accepted=timings.get("draft_n_accepted"),
        slots_speculative=slots_speculative,
        log_types=server_log.speculation_types(text),
        log_line=server_log.speculation_line(text),
        sampling=sampling,
        error=error,
    )


def _prompt(client: httpx.Client) -> str:
    """Return the canary in the model's own chat template; plain text for builds or templates that do not render it."""
    response = client.post("/apply-template", json={"messages": [{"role": "user", "content": CANARY}]})
    if response.status_code != httpx.codes.OK:
        return f"User: {CANARY}\nAssistant:"
    return str(response.json()["prompt"])


def _settled_log(log: Path) -> str:
    """Return the log once it shows the canary, or as it is after LOG_LAG_S."""
    deadline = time.monotonic() + LOG_LAG_S
    while True:
        text = log.read_text(encoding="utf-8", errors="replace")
        if server_log.request_counter(text) or time.monotonic() > deadline:
            return text
        time.sleep(0.01)
