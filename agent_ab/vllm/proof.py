"""What a started vLLM shows of itself: who it is, that its prefix cache is off, and how it speculates. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from agent_ab.model import Json
from agent_ab.server import counters
from agent_ab.server.counters import Counters

_PREFIX_CACHING = re.compile(r'vllm:cache_config_info\{[^}]*enable_prefix_caching="(\w+)"')
_SPECULATION = re.compile(r"speculative_config=(None|SpeculativeConfig\([^)]*\))")
_ENGINE = re.compile(r"Initializing a V1 LLM engine \(v?([^)]+)\) with config: (.*)")
_REQUEST = re.compile(r'"POST /v1/(?:chat/)?completions HTTP/1\.\d" \d{3}')
_ERRORS = (
    (r"unrecognized arguments: (.*)", "this vLLM does not know {0}"),
    (r"Address already in use|address already in use", "the port is taken by another process"),
    (r"(?i)out of memory|No available memory for the cache blocks|std::bad_alloc|cannot allocate memory",
     "it ran out of memory: use a smaller server.context"),
    (r"Speculative decoding .*not supported.*|.*speculative.*(?:unsupported|not supported).*", "it cannot speculate so"),
)  # fmt: skip
_ERROR_LINE = re.compile(r"\b(?:[A-Z]\w*(?:Error|Exception): |vllm: error: ).+")
_AFTERMATH = ("EngineDeadError", "EngineGenerateError")
"""The engine's own words for its end, which follow whatever ended it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a started vLLM answered and logged."""

    models: Json
    """`/v1/models`."""
    version: str
    """`/version`."""
    metrics: str
    """`/metrics` after the canaries."""
    before: Counters
    """Before the canaries."""
    canaries: tuple[Json, ...]
    """The replies to two equal requests."""
    log: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What it must be."""

    version: str
    model: str
    """The model's directory."""
    context: int
    speculation: str
    """The declared method."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether the declared speculation was shown, and by what."""

    proven: bool
    sentence: str


def identity_fault(asked: Asked, seen: Seen) -> str:
    """Return why this is not the server that was asked for, or an empty string."""
    data = seen.models.get("data") if isinstance(seen.models, Mapping) else None
    served = data[0] if isinstance(data, list) and data else {}
    if seen.version.partition("+")[0] != asked.version.partition("+")[0]:
        return f"another vLLM answers: {seen.version}, not {asked.version}"
    if served.get("root") != asked.model:
        return f"another server answers: its model is {served.get('root') or 'not named'}, not {asked.model}"
    if served.get("max_model_len") != asked.context:
        return f"the server's context is {served.get('max_model_len')}, not server.context = {asked.context}"
    return ""


def caching_fault(seen: Seen) -> str:
    """Return why the prefix cache is not shown to be off, or an empty string."""
    told = _PREFIX_CACHING.search(seen.metrics)
    if told is None or told[1] != "False":
        return f"its prefix cache is not off: /metrics says enable_prefix_caching {told[1] if told else 'nowhere'}"
    cached = [cached_tokens(reply) for reply in seen.canaries]
    hits = counters.read(seen.metrics).cached
    if any(cached) or hits:
        return f"its prefix cache is used: an equal prompt came from the cache ({max(cached)} tokens, {hits} hits)"
    return ""


def judge(declared: str, seen: Seen) -> Judgement:
    """Return whether the log, the counters and the canaries show what the profile declares."""
    line = speculation_line(seen.log)
    counted = counters.read(seen.metrics).since(seen.before)
    drafted = (
        f"the canaries drafted {counted.drafted} ({counted.accepted} accepted)" if counted else "nothing is drafted"
    )
    shown = f"{drafted}, the log says speculative_config={line or 'nothing'}"
    missing = ""
    if declared == "none":
        if counted is not None or line != "None":
            missing = "no speculation"
    elif f"method='{declared}'" not in line or counted is None:
        missing = f"{declared} in the log and its counters in /metrics"
    elif declared != "ngram" and not counted.drafted:
        # Looking up n-grams finds nothing in many a text; a model always drafts.
        missing = f"drafts by {declared}"
    return Judgement(not missing, f"{declared}: {f'not proven, missing {missing}; ' if missing else ''}{shown}")


def speculation_line(log: str) -> str:
    """Return vLLM's own words for how it speculates, `None` for not at all; empty when the log does not say."""
    engine = _ENGINE.search(log)
    found = _SPECULATION.search(engine[2]) if engine else None
    return found[1] if found else ""


def requests(log: str) -> int:
    """Return how many requests for a generation the access log shows, whatever came of them."""
    return sum(1 for _ in _REQUEST.finditer(log))


def cached_tokens(reply: Json) -> int:
    """Return how many prompt tokens of a reply came from the cache."""
    details = reply.get("usage", {}).get("prompt_tokens_details") or {}
    return int(details.get("cached_tokens") or 0)


def explain_exit(exit_code: int, log: str) -> str:
    """Return why vLLM ended, in words where the cause is known, with its own last error line."""
    why = "SIGILL: it was built for another CPU" if exit_code == -4 else ""
    for pattern, words in _ERRORS:
        if found := re.search(pattern, log):
            why = words.format(*(part.strip() for part in found.groups()))
            break
    lines = [line for line in log.splitlines() if line.strip() and " WARNING " not in line]
    errors = [found[0] for line in lines if (found := _ERROR_LINE.search(line)) and not found[0].startswith(_AFTERMATH)]
    last = (errors or lines[-1:] or [""])[0][:300]
    return f"status {exit_code}: " + ": ".join(part for part in (why, last) if part)
