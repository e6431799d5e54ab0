"""Which tokens a sampler could have said, given the target's logits: llama.cpp's own order and arithmetic. Pure.

The chain is that of `common/sampling.cpp`: penalties, top-k, top-p, min-p, temperature, in the order that the server
reports. A token's *margin* is the least change of logit gaps that brings it into the support: 0 inside, the gap to the
top token at temperature 0, infinite where the grammar forbids it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent_ab.model import Json

Logits = npt.NDArray[np.float64]
"""One value a token of the vocabulary; -inf for a token that cannot be said."""
NEAREST = 1e-6
"""How exactly a margin is found, in nats."""
HEAD = 256
"""Least number of tokens of a head."""
CHAIN = ("top_k", "top_p", "min_p", "temperature")
"""The samplers that bound the support and that are modelled; the order is the server's."""
_NEUTRAL = {
    "dynatemp_range": 0.0,
    "typical_p": 1.0,
    "dry_multiplier": 0.0,
    "xtc_probability": 0.0,
    "mirostat": 0,
}
"""Samplers that are not modelled, and the value that switches each off. Top-n-sigma is off at 0 and below."""


@dataclass(frozen=True, slots=True)
class Sampler:
    """What the server was told for one request."""

    temperature: float
    top_k: int
    """0 and below: off."""
    top_p: float
    min_p: float
    min_keep: int = 0
    order: tuple[str, ...] = CHAIN
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    bias: tuple[tuple[int, float], ...] = ()
    """(token, added logit)."""


def objection(settings: Mapping[str, Json]) -> str:
    """Return why a request with these `generation_settings` cannot be judged, or an empty string."""
    for name, neutral in _NEUTRAL.items():
        if settings.get(name, neutral) != neutral:
            return f"the sampler {name} = {settings[name]:g} is not modelled"
    if settings.get("top_n_sigma", -1.0) > 0:
        return f"the sampler top_n_sigma = {settings['top_n_sigma']:g} is not modelled"
    if "adaptive_p" in settings.get("samplers", ()) or "infill" in settings.get("samplers", ()):
        return "the sampler adaptive_p or infill is not modelled"
    missing = [name for name in CHAIN if name not in settings]
    return f"the server does not say its {missing[0]}" if missing else ""


def from_settings(settings: Mapping[str, Json], suppressed: Sequence[int] = ()) -> Sampler:
    """Return the sampler of llama-server's `generation_settings`; `suppressed` are tokens that the model forbids."""
    named = settings.get("samplers") or CHAIN
    bias = [(int(entry["token"]), float(entry["bias"])) for entry in settings.get("logit_bias", ())]
    return Sampler(
        temperature=float(settings["temperature"]),
        top_k=int(settings["top_k"]),
        top_p=float(settings["top_p"]),
        min_p=float(settings["min_p"]),
        min_keep=int(settings.get("min_keep", 0)),
        order=tuple(name for name in named if name in CHAIN),
        repeat_last_n=int(settings.get("repeat_last_n", 64)),
        repeat_penalty=float(settings.get("repeat_penalty", 1.0)),
        presence_penalty=float(settings.get("presence_penalty", 0.0)),
        frequency_penalty=float(settings.get("frequency_penalty", 0.0)),
        bias=(*bias, *((token, -np.inf) for token in suppressed)),
    )


def adjusted(logits: npt.NDArray[np.floating], sampler: Sampler, history: Sequence[int]) -> Logits:
    """Return the logits after bias and penalties; `history` is the prompt and the reply so far."""
    row = np.array(logits, np.float64)
    for token, bias in sampler.bias:
        row[token] += bias
    neutral = sampler.repeat_penalty == 1.0 and sampler.presence_penalty == 0.0 and sampler.frequency_penalty == 0.0
    if neutral or sampler.repeat_last_n == 0:
        return row
    recent = history if sampler.repeat_last_n < 0 else history[-sampler.repeat_last_n :]
    for token, count in Counter(recent).items():
        value = row[token]
        value = value * sampler.repeat_penalty if value <= 0 else value / sampler.repeat_penalty
        row[token] = value - count * sampler.frequency_penalty - sampler.presence_penalty
    return row


def rank(logits: Logits, token: int) -> int:
    """Return how many tokens are more probable than `token`."""
    return int((logits > logits[token]).sum())


def log_probability(logits: Logits, token: int) -> float:
    """Return the natural logarithm of the token's probability under the whole distribution, at temperature 1."""
    top = logits.max()
    return float(logits[token] - top - np.log(np.exp(logits - top).sum()))


@dataclass(frozen=True, slots=True)
class Head:
    """The part of a row that can decide about a support, sorted; with top-k that is far less than the vocabulary."""

    ids: npt.NDArray[np.intp]
    """Tokens, the most probable first."""
    values: Logits
    row: Logits

    @classmethod
    def of(cls, row: Logits, sampler: Sampler) -> "Head":
        """Take the head of `row`."""
        size = row.size
        if sampler.top_k > 0 and sampler.order[:1] == ("top_k",):
            # What top-k cuts off has no say; more than it keeps, since a slack may move others in.
            size = min(size, max(HEAD, 2 * sampler.top_k, 2 * sampler.min_keep))
        ids = np.argpartition(-row, size - 1)[:size] if size < row.size else np.arange(size)
        ids = ids[np.argsort(-row[ids], kind="stable")]
        return cls(ids, row[ids], row)

    def around(self, token: int) -> tuple[Logits, int]:
        """Return logits that hold `token`'s, and its index among them."""
        found = np.flatnonzero(self.ids == token)
        if found.size:
            return self.values, int(found[0])
        return np.append(self.values, self.row[token]), self.values.size


def supports(logits: Logits, token: int, sampler: Sampler, slack: float = 0.0) -> bool:
    """Return whether the sampler could have said `token`, if every gap to a more probable token were `slack` smaller."""
    value = logits[token]
    if not np.isfinite(value):
        return False
    above = logits > value
    others = np.where(above, logits - slack, logits)
    others[token] = value
    # Where the gap is closed the token stands in front: of equal logits the sampler may take any.
    before = above & (others > value)
    return _survives(np.sort(others[before])[::-1], value, others[~before & np.isfinite(others)], sampler)


def _survives(before: Logits, value: float, rest: Logits, sampler: Sampler) -> bool:
    """Follow the chain for the token that stands at index `before.size`; `rest` holds it and all after it."""
    index = before.size
    scale = 1.0
    for name in sampler.order:
        if name == "top_k" and sampler.top_k > 0:
            keep = max(sampler.top_k, sampler.min_keep)
            if index >= keep:
                return False
            if rest.size > keep - index:
                rest = np.partition(rest, rest.size - (keep - index))[rest.size - (keep - index) :]
        elif name == "top_p" and sampler.top_p < 1.0:
            top = before[0] if index else value
            mass = np.exp((before - top) * scale).sum()
            total = mass + np.exp((rest - top) * scale).sum()
            if mass / total >= sampler.top_p and index >= max(sampler.min_keep, 1):
                return False
            # What top-p cuts off below the token has no say in what follows: min-p and temperature look upwards.
        elif name == "min_p" and sampler.min_p > 0.0:
            top = before[0] if index else value
            if (value - top) * scale < np.log(sampler.min_p) and index >= max(sampler.min_keep, 1):
                return False
        elif name == "temperature":
            if sampler.temperature <= 0.0:
                return index == 0
            scale /= sampler.temperature
    return True


def margin(logits: Logits, token: int, sampler: Sampler) -> float:
    """Return the least slack with which `supports` says yes; 0 inside the support, infinite for a forbidden token."""
    if not np.isfinite(logits[token]):
        return float("inf")
    if supports(logits, token, sampler):
        return 0.0
    low, high = 0.0, float(logits.max() - logits[token])
    while high - low > NEAREST:
        middle = (low + high) / 2
        low, high = (low, middle) if supports(logits, token, sampler, middle) else (middle, high)
    return high


def likely(logits: Logits, sampler: Sampler, slack: float, most: int) -> list[int]:
    """Return the indices of the support (with `slack`), the most probable first, `most` at most."""
    order: list[int] = np.argsort(-logits, kind="stable")[:most].tolist()
    # A less probable token has less support, so the support is a beginning of this list.
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if supports(logits, order[middle], sampler, slack):
            low = middle + 1
        else:
            high = middle
    return order[:low]


def gap_change(one: npt.NDArray[np.floating], other: npt.NDArray[np.floating], tokens: Sequence[int]) -> float:
    """Return the largest change of a logit gap between any two of `tokens` from the row `one` to the row `other`."""
    chosen = np.asarray(tokens, np.intp)
    before, after = np.asarray(one, np.float64)[chosen], np.asarray(other, np.float64)[chosen]
    finite = np.isfinite(before) & np.isfinite(after)
    change = after[finite] - before[finite]
    return float(change.max() - change.min()) if change.size else 0.0
