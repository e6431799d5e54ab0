"""Two exchange logs -> where the arms part, and whether the model or its surroundings did it. Pure.

docs/divergence.md says what each kind means and how the cases between them are decided.
"""

import json
from dataclasses import dataclass, replace
from itertools import islice, zip_longest

from agent_ab.divergence.declared import shares
from agent_ab.divergence.normalise import CALL_IDS, RULES, Rule, about, explaining, with_mapped_call_ids
from agent_ab.divergence.parting import SHOWN, Divergence, Ignored, Kind, Parting, Side, Where, declared_words
from agent_ab.divergence.reply_diff import CUT_WORDS, Blame, ReplyDifference, Tokenize, compare, parts
from agent_ab.divergence.request_diff import (
    Leaf,
    RequestDifference,
    as_sent,
    differences,
    explain,
    explain_first,
    first_difference,
    rules_of,
)
from agent_ab.model import AgentEnd, Attempt, Exchange, ExchangeLog, Json, Outcome
from agent_ab.pair.variable import ANYTHING, named


@dataclass(frozen=True, slots=True)
class Story:
    """One arm's exchange log and how the attempt ended."""

    log: ExchangeLog | None
    ended: str = "the agent ended"
    """In words, for a sentence: `the agent was cut off by its time limit of 120 s`."""
    broken: str = ""
    """Why the attempt is INVALID; empty otherwise."""


def between(baseline: Attempt, candidate: Attempt, tokenize: Tokenize | None = None, variable: str = "") -> Parting:
    """Return where two attempts part; their logs must have come with bodies (not from the database)."""
    return walk(_story(baseline), _story(candidate), tokenize, variable)


def walk(baseline: Story, candidate: Story, tokenize: Tokenize | None = None, variable: str = "") -> Parting:
    """Walk two exchange logs in step and return both views of the first difference.

    `tokenize` cuts a text as the server does; without it a difference in a reply has a character's index only. What the
    declared `variable` changes in requests is passed over in both views, and listed.
    """
    raw = _Walk(baseline, candidate, tokenize, (), variable)
    first = raw.first_difference()
    # Only a difference between requests can be explained away: replies to equal requests are the model's own.
    if first.kind is not Kind.ENVIRONMENT or first.where is not Where.REQUEST:
        return Parting(first, first, (), tuple(raw.declared))
    lenient = _Walk(baseline, candidate, tokenize, RULES, variable)
    second = lenient.first_difference()
    return Parting(first, second, tuple(lenient.ignored), tuple(lenient.declared))


def _story(attempt: Attempt) -> Story:
    broken = attempt.invalid_reason or "the attempt is invalid" if attempt.outcome is Outcome.INVALID else ""
    run = attempt.agent
    if run is None:
        return Story(attempt.log, "the agent's end is not known", broken)
    ended = {
        AgentEnd.COMPLETED: "the agent ended by itself",
        AgentEnd.CRASHED: f"the agent crashed with status {run.exit_code}",
        AgentEnd.TIMEOUT: f"the agent was cut off by its time limit of {run.time_limit_s:g} s",
    }[run.end]
    return Story(attempt.log, f"{ended} ({run.note})" if run.note else ended, broken)


class _Walk:
    """One walk along both logs; `rules` may explain differences between requests away."""

    def __init__(
        self, left: Story, right: Story, tokenize: Tokenize | None, rules: tuple[Rule, ...], variable: str
    ) -> None:
        self.ignored: list[Ignored] = []
        self.declared: list[Ignored] = []
        self._variable, self._keys = variable, frozenset(named(variable).request)
        self._stories = left, right
        self._tokenize = tokenize
        self._rules = rules
        self._mapped_ids = False

    def first_difference(self) -> Divergence:
        logs = self._stories[0].log, self._stories[1].log
        if logs[0] is None or logs[1] is None:
            return self._at_end(0)
        refused = self._refused_first(logs[0], logs[1])
        if refused:
            return refused
        for index, (left, right) in enumerate(zip_longest(logs[0].exchanges, logs[1].exchanges)):
            if left is None or right is None:
                return self._at_end(index)
            found = self._request(index, left, right) or self._reply(index, left, right)
            if found:
                return found
        return self._at_end(len(logs[0].exchanges))

    def _refused_first(self, left: ExchangeLog, right: ExchangeLog) -> Divergence | None:
        """Return the difference of a first request that the proxy refused because it was another one."""
        sent: list[tuple[Json, str]] = []
        for log in (left, right):
            refusal = next((r for r in log.refused if r.reason == "identity" and r.request is not None), None)
            if log.exchanges:
                first = log.exchanges[0]
                sent.append((as_sent(first.request, first.pinned), first.agent_sha256))
            elif refusal:
                sent.append((refusal.request, refusal.agent_sha256))
        if len(sent) < 2 or (left.exchanges and right.exchanges):
            return None
        found = explain_first(*shares(sent[0][0], sent[1][0], self._keys, first=True).rest)
        return _requests_part(0, found) if found else _unexplained(0, sent[0][1], sent[1][1])

    def _request(self, index: int, left: Exchange, right: Exchange) -> Divergence | None:
        same_bytes = left.agent_sha256 == right.agent_sha256
        if same_bytes and left.server_sha256 == right.server_sha256:
            return None
        declared = self._pass_over_declared(index, left.request, right.request)
        if ANYTHING in self._keys:
            return None
        if same_bytes:
            return self._passed_on(index, left, right, explained=declared)
        sent = self._rest(index, as_sent(left.request, left.pinned), as_sent(right.request, right.pinned))
        mapped = with_mapped_call_ids(sent[0]), with_mapped_call_ids(sent[1])
        leaves = list(differences(*mapped))
        if not leaves:
            if next(differences(*sent), None) is not None:
                self._mapped_ids = True
            elif not declared:
                return _unexplained(index, left.agent_sha256, right.agent_sha256)
            return self._passed_on(index, left, right, explained=True)
        for leaf in leaves:
            names = rules_of(leaf, sent[0]) if self._rules else ()
            if not names:
                found = explain_first(*sent) if index == 0 else None
                return _requests_part(index, found or explain(leaf, *sent))
            shown = _shown(leaf.left, leaf.right)
            source = explain(leaf, *sent).source
            _pass_over(self.ignored, Ignored(index, leaf.path, source, names, *shown))
        return None

    def _rest(self, index: int, left: Json, right: Json) -> tuple[Json, Json]:
        return shares(left, right, self._keys, first=index == 0).rest

    def _passed_on(self, index: int, left: Exchange, right: Exchange, *, explained: bool) -> Divergence | None:
        """Return what the proxy made of equal requests; `explained`: a known difference makes other bytes of them."""
        # The name that an attached server has for its model is written over the agent's.
        ours = {"model": None} if "model" in {*left.pinned, *right.pinned} else {}
        left_rest, right_rest = self._rest(index, as_sent(left.request, ours), as_sent(right.request, ours))
        leaf = next(differences(with_mapped_call_ids(left_rest), with_mapped_call_ids(right_rest)), None)
        renamed = bool(ours) and left.request.get("model") != right.request.get("model")
        return None if leaf is None and (explained or renamed) else _proxy_broke(index, leaf)

    def _pass_over_declared(self, index: int, left: Json, right: Json) -> bool:
        """Note what the declared variable makes differ in two requests; return whether it is anything."""
        left, right = with_mapped_call_ids(left), with_mapped_call_ids(right)
        leaves = differences(*shares(left, right, self._keys, first=index == 0).own)
        # Where all of a request is the variable's own, the first place says enough.
        noted = list(islice(leaves, 1) if ANYTHING in self._keys else leaves)
        for leaf in noted:
            shown = _shown(leaf.left, leaf.right)
            _pass_over(self.declared, Ignored(index, leaf.path, explain(leaf, left, right).source, (), *shown))
        return bool(noted)

    def _requests_differ(self) -> str:
        if ANYTHING in self._keys:
            return f"the requests are the declared variable {self._variable}'s own"
        changed = declared_words(self.declared)
        return f"the requests differ only in {changed}, which the declared variable {self._variable} changes"

    def _tainted(self) -> str:
        if not self.ignored:
            return ""
        first = self.ignored[0]
        return (
            f", but for {about(rule for seen in self.ignored for rule in seen.rules)} since exchange {first.exchange}"
        )

    def _reply(self, index: int, left: Exchange, right: Exchange) -> Divergence | None:
        prompts = _prompt_tokens(left), _prompt_tokens(right)
        same_bytes = left.agent_sha256 == right.agent_sha256
        if same_bytes and None not in prompts and prompts[0] != prompts[1]:
            return _prompts_part(index, prompts)
        found = compare(left, right, self._tokenize)
        if found is None or (self.ignored and _equal_when_normalised(left, right)):
            return None
        return self._replies_part(index, found)

    def _replies_part(self, index: int, found: ReplyDifference) -> Divergence:
        kind, cause = self._verdict(found)
        if self.ignored and kind is Kind.MODEL:
            kind = Kind.ENVIRONMENT
            cause = "the replies part, and the requests were equal" + self._tainted() + ": the model cannot be blamed"
        elif self.declared and kind is Kind.MODEL:
            kind, cause = Kind.DECLARED, f"different replies; {self._requests_differ()}"
        elif self._mapped_ids and kind is Kind.MODEL:
            cause += "; the server's random call ids are taken as equal, which a chat template that writes them betrays"
        if kind in (Kind.MODEL, Kind.DECLARED) and self._tokenize is None:
            cause += "; no tokenizer was at hand, so the place is given in characters"
        return Divergence(
            kind=kind,
            common=index,
            exchange=index,
            where=Where.REPLY,
            path=found.path,
            source="the model's reply",
            cause=cause,
            character=found.character,
            token=found.token,
            baseline=Side(found.left.continuation[:SHOWN], found.left.token, found.left.end),
            candidate=Side(found.right.continuation[:SHOWN], found.right.token, found.right.end),
            rules=(CALL_IDS,) if self._mapped_ids else (),
        )

    def _verdict(self, found: ReplyDifference) -> tuple[Kind, str]:
        if found.blame is Blame.MODEL:
            return Kind.MODEL, "equal requests, different replies"
        if found.blame is Blame.SERVER:
            return Kind.INFRASTRUCTURE, "the server or a connection broke, and no output of the model explains it"
        sides = zip(_ARMS, (found.left, found.right), self._stories, strict=True)
        cut = [f"{arm}: {story.ended}" for arm, side, story in sides if side.end in CUT_WORDS]
        return Kind.ENVIRONMENT, f"a reply was cut off, and what both wrote is equal ({'; '.join(cut)})"

    def _at_end(self, common: int) -> Divergence:
        stories = self._stories
        lengths = [len(story.log.exchanges) if story.log else 0 for story in stories]
        broken = [f"{arm}: {story.broken}" for arm, story in zip(_ARMS, stories, strict=True) if story.broken]
        kind, cause, where = Kind.IDENTICAL, f"all {common} exchanges are equal", Where.NOWHERE
        if broken:
            kind, cause, where = Kind.INFRASTRUCTURE, "; ".join(broken), Where.END
        elif None in (stories[0].log, stories[1].log):
            kind, cause, where = Kind.INFRASTRUCTURE, "an exchange log is missing", Where.END
        elif lengths[0] != lengths[1]:
            shorter = lengths.index(min(lengths))
            kind, where = Kind.ENVIRONMENT, Where.END
            cause = f"{_ARMS[shorter]}: {stories[shorter].ended}, and the {_ARMS[1 - shorter]}'s agent asked on"
            if ANYTHING in self._keys and self.declared:
                kind, cause = Kind.DECLARED, f"{cause}; {self._requests_differ()}"
        elif self.declared:
            kind, cause = Kind.DECLARED, f"all {common} replies are equal; {self._requests_differ()}"
        rules = (CALL_IDS,) if self._mapped_ids else ()
        return Divergence(
            kind=kind,
            common=common,
            exchange=None if where is Where.NOWHERE else common,
            where=where,
            path="",
            source="",
            cause=cause + (self._tainted() if where is Where.NOWHERE else ""),
            character=None,
            token=None,
            baseline=Side(f"{lengths[0]} exchanges", end=stories[0].broken or stories[0].ended),
            candidate=Side(f"{lengths[1]} exchanges", end=stories[1].broken or stories[1].ended),
            rules=rules,
        )


_ARMS = ("baseline", "candidate")


def _pass_over(seen: list[Ignored], ignored: Ignored) -> None:
    # A conversation is sent again with every turn, and its differences with it.
    if (ignored.path, ignored.baseline) not in {(other.path, other.baseline) for other in seen}:
        seen.append(ignored)


def _requests_part(index: int, found: RequestDifference) -> Divergence:
    shown = _shown(found.left, found.right)
    texts = isinstance(found.left, str) and isinstance(found.right, str)
    return Divergence(
        kind=Kind.ENVIRONMENT,
        common=index,
        exchange=index,
        where=Where.REQUEST,
        path=found.path,
        source=found.source,
        cause=found.cause,
        character=first_difference(found.left, found.right) if texts else None,
        token=None,
        baseline=Side(shown[0]),
        candidate=Side(shown[1]),
        rules=found.rules,
    )


def _unexplained(index: int, left: str, right: str) -> Divergence:
    cause = "the bytes differ where the record does not show it: spacing, escapes, or a redacted secret"
    return _requests_part(index, RequestDifference("$", left, right, "the request", cause, ()))


def _proxy_broke(index: int, leaf: Leaf | None) -> Divergence:
    left, right, path = (leaf.left, leaf.right, leaf.path) if leaf else (None, None, "$")
    cause = "the agents asked the same, but the proxy passed on different bytes"
    found = RequestDifference(path, left, right, "what the proxy pins", cause, ())
    return replace(_requests_part(index, found), kind=Kind.INFRASTRUCTURE)


def _prompts_part(index: int, tokens: tuple[int | None, int | None]) -> Divergence:
    cause = "the server made prompts of different lengths of equal requests: does its chat template tell the date?"
    found = RequestDifference("usage.prompt_tokens", *tokens, "the prompt that the server made", cause, ())
    return _requests_part(index, found)


def _prompt_tokens(exchange: Exchange) -> int | None:
    if exchange.usage and "prompt_tokens" in exchange.usage:
        return exchange.usage["prompt_tokens"]
    return exchange.timings.prompt_n + exchange.timings.cache_n if exchange.timings else None


def _equal_when_normalised(left: Exchange, right: Exchange) -> bool:
    mine, theirs = parts(left), parts(right)
    if [p.path for p in mine] != [p.path for p in theirs] or left.finish_reason != right.finish_reason:
        return False
    if (left.error, left.status) != (right.error, right.status):
        return False
    pairs = zip(mine, theirs, strict=True)
    return all(a.text == b.text or explaining(a.text, b.text, result=False) for a, b in pairs)


def _shown(left: Json, right: Json) -> tuple[str, str]:
    if isinstance(left, str) and isinstance(right, str):
        at = first_difference(left, right)
        return around(left, at), around(right, at)
    return _as_json(left), _as_json(right)


def _as_json(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def around(text: str, at: int, most: int = SHOWN) -> str:
    """Return the line of `text` that holds character `at`, or `most` characters of it."""
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    line = text[start : len(text) if end < 0 else end]
    if len(line) <= most:
        return line
    first = max(0, min(at - start - most // 2, len(line) - most))
    return "..." * (first > 0) + line[first : first + most] + "..." * (first + most < len(line))
