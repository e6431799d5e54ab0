"""Decoding methods compared: medians over rounds with exact intervals, and ratios to the baseline. Pure.

A round plays the same requests once with every method, each on a fresh server. The unit is the round: a rate is the
round's tokens over the round's seconds, a ratio divides two rates of one round, so that what slows the machine down for
a while slows both. The interval of a median over rounds is the exact one of order statistics, which assumes nothing of
the distribution: between the k-th smallest and the k-th greatest of n values lies the median with the probability
1 - 2 P(B < k), B binomial(n, 1/2) (Conover, Practical Nonparametric Statistics, 3.2). Of a ratio it is the exact one of the
signed-rank test over the ratio's logarithms (Hodges and Lehmann 1963; Hollander, Wolfe and Chicken, Nonparametric
Statistical Methods, 3.2 and 3.3), which takes them for symmetric: what disturbs a round hits either method alike.

The interval speaks of these requests on this machine. How much other requests would differ, the classes show.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

from agent_ab.model import Drafting

ALL = "all"
"""The class of all requests together."""
CONFIDENCE = 0.95
CONTEXTS = (256, 1024, 4096, 16384, 65536)
"""Edges of the prompt lengths, in tokens, by which acceptance is told apart."""
LEAST_ROUNDS = 6
"""Fewer give no interval of CONFIDENCE."""
FEW_DRAFTS = 50
"""Fewer drafted tokens than this are too few to say that a draft does not fit."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One request played once."""

    method: str
    round: int
    request: str
    kind: str
    """The request's class."""
    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    ttft_s: float | None
    """Until the first piece of text; None when there was none."""
    wall_s: float
    """Until the reply was whole."""
    drafting: Drafting | None
    """None when the server does not count, or nothing was drafted."""
    text_sha256: str
    finish: str
    error: str = ""
    """Why there is no whole reply, or empty."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A median over rounds."""

    median: float
    low: float
    high: float
    coverage: float
    """The probability that the interval covers the true median."""
    rounds: int

    @property
    def half_width(self) -> float:
        """Return the greater distance from the median to an end, as a share of the median."""
        return max(self.high - self.median, self.median - self.low) / self.median

    def agrees(self, other: "Interval") -> bool:
        """Return whether two intervals overlap."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True, slots=True)
class Row:
    """One method on one class of requests."""

    method: str
    kind: str
    replies: int
    errors: int
    decode: Interval | None
    """Generated tokens a second."""
    prefill: Interval | None
    """Prompt tokens a second."""
    ttft_s: Interval | None
    wall_s: Interval | None
    """Seconds for one reply, on the average of the round."""
    decode_ratio: Interval | None
    """Decode rate over the baseline's of the same round; None for the baseline."""
    prefill_ratio: Interval | None
    speedup: Interval | None
    """The baseline's wall time of a reply over this method's: what a user waits for, prefill and start of text included."""
    drafted: int
    accepted: int
    by_position: tuple[float, ...]
    """Share of the drafts whose token at this position was accepted."""
    by_context: Mapping[str, float]
    """Accepted share of the drafted tokens, by the length of the prompt."""
    same_text: int
    """Replies whose text is the baseline's of the same round."""

    @property
    def acceptance(self) -> float | None:
        """Return the accepted share of the drafted tokens; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None


def interval(values: Sequence[float]) -> Interval | None:
    """Return the median and its exact interval of at least CONFIDENCE, or the whole range when the rounds are too few."""
    n = len(values)
    if not n:
        return None
    ordered = sorted(values)
    low, high, coverage = _ends(ordered, n, [math.comb(n, k) for k in range(n + 1)])
    return Interval(median(ordered), low, high, coverage, n)


def _ends(ordered: Sequence[float], n: int, ways: Sequence[int]) -> tuple[float, float, float]:
    """Return the innermost two of `ordered`, as far from either end, with CONFIDENCE between them, and their coverage.

    The k-th smallest is above the true value in `ways[0]` to `ways[k-1]` of the 2**n ways in which n rounds can fall.
    With too few rounds for CONFIDENCE these are the outermost two.
    """
    covers = [1 - 2 * below / 2**n if n > 1 else 0.0 for below in accumulate(ways)]
    cut = 1
    while cut < len(ordered) // 2 and covers[cut] >= CONFIDENCE:
        cut += 1
    return ordered[cut - 1], ordered[-cut], covers[cut - 1]


def ratio_interval(ratios: Sequence[float]) -> Interval | None:
    """Return the Hodges-Lehmann estimate of a ratio and its exact signed-rank interval of at least CONFIDENCE.

    With too few rounds for one: the whole range of the pairs' means, which covers what it covers.
    """
    n = len(ratios)
    if not n:
        return None
    logs = [math.log(ratio) for ratio in ratios]
    means = sorted((a + b) / 2 for i, a in enumerate(logs) for b in logs[i:])
    low, high, coverage = _ends(means, n, _signed_ranks(n))
    return Interval(math.exp(median(means)), math.exp(low), math.exp(high), coverage, n)


def _signed_ranks(n: int) -> list[int]:
    """Return in how many of the 2**n ways to sign the ranks 1 to n the positive ones sum to 0, 1, 2, ..."""
    ways = [1]
    for rank in range(1, n + 1):
        longer = ways + [0] * rank
        for total, count in enumerate(ways):
            longer[total + rank] += count
        ways = longer
    return ways


def order(methods: Sequence[str], round_: int) -> tuple[str, ...]:
    """Return the order of the methods in a round: there, and back again in the next (ABBA)."""
    return tuple(methods) if round_ % 2 == 0 else tuple(reversed(methods))


def goes_on(done: int, planned: int, elapsed_s: float, limit_s: float | None) -> bool:
    """Return whether another round is played: the clock decides on it, never what was measured."""
    if done >= planned:
        return False
    return done < LEAST_ROUNDS or limit_s is None or elapsed_s * (done + 1) / done <= limit_s


def table(replies: Iterable[Reply], baseline: str) -> tuple[Row, ...]:
    """Return a row for each method and class, ALL first, in the order of their first appearance."""
    whole = tuple(replies)
    kinds = [ALL, *dict.fromkeys(reply.kind for reply in whole)]
    methods = dict.fromkeys([baseline, *sorted({r.method for r in whole}, key=_first_seen(whole))])
    return tuple(
        _row([r for r in whole if kind in (ALL, r.kind)], method, kind, baseline)
        for kind in kinds
        for method in methods
    )


def _first_seen(replies: Sequence[Reply]) -> Callable[[str], int]:
    names = list(dict.fromkeys(reply.method for reply in replies))
    return names.index


def _row(replies: Sequence[Reply], method: str, kind: str, baseline: str) -> Row:
    own = [reply for reply in replies if reply.method == method]
    theirs = [reply for reply in replies if reply.method == baseline]
    good = [reply for reply in own if not reply.error]
    drafts = [reply.drafting for reply in good if reply.drafting]
    texts = {(r.round, r.request): r.text_sha256 for r in theirs if not r.error}
    rates = {name: _by_round(own, rate) for name, rate in _RATES.items()}
    base = {name: _by_round(theirs, rate) for name, rate in _RATES.items()}

    def ratio(name: str, *, upside_down: bool = False) -> Interval | None:
        if method == baseline:
            return None
        pairs = [(rates[name][r], base[name][r]) for r in rates[name] if r in base[name]]
        return ratio_interval([b / a if upside_down else a / b for a, b in pairs if a and b])

    return Row(
        method=method,
        kind=kind,
        replies=len(good),
        errors=len(own) - len(good),
        decode=interval([*rates["decode"].values()]),
        prefill=interval([*rates["prefill"].values()]),
        ttft_s=interval([*rates["ttft"].values()]),
        wall_s=interval([*rates["wall"].values()]),
        decode_ratio=ratio("decode"),
        prefill_ratio=ratio("prefill"),
        speedup=ratio("wall", upside_down=True),
        drafted=sum(d.drafted for d in drafts),
        accepted=sum(d.accepted for d in drafts),
        by_position=_by_position(drafts),
        by_context=_by_context(good),
        same_text=sum(texts.get((r.round, r.request)) == r.text_sha256 for r in good),
    )


def _decode(replies: Sequence[Reply]) -> float | None:
    # The first token comes out of the prompt's last step: its time is prefill, and so it is not counted.
    tokens, ms = sum(max(0, r.predicted_n - 1) for r in replies), sum(r.predicted_ms for r in replies)
    return tokens / ms * 1e3 if tokens and ms else None


def _prefill(replies: Sequence[Reply]) -> float | None:
    tokens, ms = sum(r.prompt_n for r in replies), sum(r.prompt_ms for r in replies)
    return tokens / ms * 1e3 if tokens and ms else None


def _ttft(replies: Sequence[Reply]) -> float | None:
    seen = [r.ttft_s for r in replies if r.ttft_s is not None]
    return sum(seen) / len(seen) if seen else None


def _wall(replies: Sequence[Reply]) -> float | None:
    return sum(r.wall_s for r in replies) / len(replies) if replies else None


_RATES: Mapping[str, Callable[[Sequence[Reply]], float | None]] = {
    "decode": _decode,
    "prefill": _prefill,
    "ttft": _ttft,
    "wall": _wall,
}


def _by_round(replies: Sequence[Reply], rate: Callable[[Sequence[Reply]], float | None]) -> dict[int, float]:
    rounds: dict[int, list[Reply]] = {}
    for reply in replies:
        if not reply.error:
            rounds.setdefault(reply.round, []).append(reply)
    rates = {number: rate(inside) for number, inside in rounds.items()}
    return {number: value for number, value in rates.items() if value is not None}


def _by_position(drafts: Sequence[Drafting]) -> tuple[float, ...]:
    count = sum(d.drafts for d in drafts)
    length = max((len(d.accepted_at) for d in drafts), default=0)
    accepted = [sum(d.accepted_at[at] for d in drafts if at < len(d.accepted_at)) for at in range(length)]
    return tuple(a / count for a in accepted) if count else ()


def _by_context(replies: Sequence[Reply]) -> dict[str, float]:
    drafted: dict[str, int] = {}
    accepted: dict[str, int] = {}
    for reply in sorted(replies, key=lambda r: r.prompt_n):
        if reply.drafting:
            name = context_name(reply.prompt_n)
            drafted[name] = drafted.get(name, 0) + reply.drafting.drafted
            accepted[name] = accepted.get(name, 0) + reply.drafting.accepted
    return {name: accepted[name] / count for name, count in drafted.items() if count}


def context_name(tokens: int) -> str:
    """Return the name of the bucket in which a prompt of so many tokens falls."""
    for edge in CONTEXTS:
        if tokens < edge:
            return f"< {edge}"
    return f">= {CONTEXTS[-1]}"


def never_accepted(replies: Iterable[Reply]) -> str:
    """Return why a method's draft does not fit its target, or an empty string: much was drafted, nothing accepted."""
    drafts = [reply.drafting for reply in replies if reply.drafting]
    drafted, accepted = sum(d.drafted for d in drafts), sum(d.accepted for d in drafts)
    if accepted or drafted < FEW_DRAFTS:
        return ""
    return f"the draft does not fit this model: none of {drafted} drafted tokens was accepted"
