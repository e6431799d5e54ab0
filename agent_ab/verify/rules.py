"""What makes a task trustworthy: runs of its variants in, findings out. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from agent_ab.model import CheckResult, CheckStatus, Json, Task

SHORTEST_LITERAL = 6
"""A shorter input of a check says too little to be a give-away."""
LONGEST_LITERAL = 200
JUDGES_FILES = ("checks.py", "probes.py", "driver.py", "solution/", "mutants/")


class Fault(StrEnum):
    """Every way in which a task can fail to be trustworthy."""

    STARTING_CODE = "starting-code"
    REFERENCE = "reference"
    FLAKY = "flaky"
    MUTANT_SURVIVES = "mutant-survives"
    MUTANT_KILLS_MORE = "mutant-kills-more"
    MUTANT_DOES_NOT_APPLY = "mutant-does-not-apply"
    MUTANT_BREAKS_TESTS = "mutant-breaks-tests"
    MUTANT_WITHOUT_CHECK = "mutant-without-check"
    CHECK_UNPROVEN = "check-unproven"
    CHECK_COUNT = "check-count"
    PROBE_COUNT = "probe-count"
    PUBLIC_TESTS = "public-tests"
    RULE_NOT_STATED = "rule-not-stated"
    INSTRUCTION_LEAK = "instruction-leak"
    FIXTURE_CHANGED = "fixture-changed"
    HISTORY_LEAK = "history-leak"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of a task."""

    fault: Fault
    subject: str
    """The check, mutant, file or code that it is about."""
    sentence: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What a task must have."""

    checks: int = 10
    probes: int = 3
    """At least."""
    spill: int = 2
    """Other checks that a mutant may fail besides its own."""


class Kind(StrEnum):
    """Where a variant's code comes from."""

    START = "starting code"
    REFERENCE = "reference"
    MUTANT = "mutant"


@dataclass(frozen=True, slots=True)
class Variant:
    """One state of the code to be judged."""

    kind: Kind
    mutant: str = ""
    """The id in the patch's name."""

    @property
    def name(self) -> str:
        """Return what a reader calls it."""
        return f"mutant {self.mutant}" if self.kind is Kind.MUTANT else f"the {self.kind.value}"


@dataclass(frozen=True, slots=True)
class PublicTests:
    """How the fixture's own tests ended on a variant."""

    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class VariantRun:
    """One variant in the real checks path."""

    variant: Variant
    rounds: tuple[tuple[CheckResult, ...], ...]
    """One per repetition, all on the same snapshot; empty when the variant could not be built."""
    tests: PublicTests | None
    broken: str = ""
    """Why the variant could not be built."""
    duration_s: float = 0.0

    @property
    def checks(self) -> tuple[str, ...]:
        """Return the ids of the checks, without the probes."""
        return tuple(c.id for c in self.rounds[0] if c.scored) if self.rounds else ()

    def passes(self, check_id: str, *, always: bool = True) -> bool:
        """Return whether the check passed in every round, or, without `always`, in any."""
        passed = [any(c.id == check_id and c.status is CheckStatus.PASS for c in results) for results in self.rounds]
        return bool(passed) and (all(passed) if always else any(passed))

    def failed(self) -> tuple[str, ...]:
        """Return the ids of the checks that failed in any round."""
        return tuple(check_id for check_id in self.checks if not self.passes(check_id))

    def reason(self, check_id: str) -> str:
        """Return why the check failed first, or an empty string."""
        results = [c for r in self.rounds for c in r if c.id == check_id and c.status is CheckStatus.FAIL]
        return results[0].reason if results else ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that the judgement needs to know."""

    task: Task
    runs: tuple[VariantRun, ...]
    known_text: str
    """Whatever the candidate may see, and the driver and the reference: a literal in it gives nothing away."""
    fixture_paths: tuple[str, ...]
    fixture_changed: str = ""
    """Why the fixture is not the recorded one."""
    history: tuple[str, ...] = ()
    """What the workspace's repository holds and should not, a sentence each."""

    def run(self, kind: Kind) -> VariantRun:
        """Return the run of the starting code or of the reference."""
        return next(run for run in self.runs if run.variant.kind is kind)

    @property
    def mutants(self) -> tuple[VariantRun, ...]:
        """Return the mutants' runs."""
        return tuple(run for run in self.runs if run.variant.kind is Kind.MUTANT)

    @property
    def items(self) -> tuple[CheckResult, ...]:
        """Return one result of every check and probe, for what does not depend on the code."""
        return self.run(Kind.REFERENCE).rounds[0]


def judge(evidence: Evidence, limits: Limits) -> tuple[Finding, ...]:
    """Return every fault of the task."""
    return (
        *_counts(evidence, limits),
        *_scores(evidence),
        *_mutants(evidence, limits),
        *_flaky(evidence),
        *_public_tests(evidence),
        *_rules(evidence),
        *_leaks(evidence),
        *_start(evidence),
    )


def _counts(evidence: Evidence, limits: Limits) -> Iterator[Finding]:
    checks = [item for item in evidence.items if item.scored]
    probes = [item for item in evidence.items if not item.scored]
    if len(checks) != limits.checks:
        yield Finding(Fault.CHECK_COUNT, "checks.py", f"there are {len(checks)} checks; a task has {limits.checks}")
    if len(probes) < limits.probes:
        sentence = f"there are {len(probes)} probes; a task has {limits.probes} or more"
        yield Finding(Fault.PROBE_COUNT, "probes.py", sentence)


def _scores(evidence: Evidence) -> Iterator[Finding]:
    start, only = evidence.run(Kind.START), evidence.task.starting_passes
    if only not in start.checks:
        yield Finding(Fault.STARTING_CODE, "task.toml", f"starting_passes names {only!r}, and no check has that id")
    passing = [check_id for check_id in start.checks if start.passes(check_id, always=False)]
    if passing != [only]:
        found = ", ".join(passing) or "none"
        sentence = f"the starting code passes {len(passing)} of {len(start.checks)} checks ({found})"
        yield Finding(Fault.STARTING_CODE, start.variant.name, f"{sentence}; it should pass {only} alone")
    reference = evidence.run(Kind.REFERENCE)
    for check_id in reference.failed():
        sentence = f"the reference fails {check_id}: {reference.reason(check_id)}"
        yield Finding(Fault.REFERENCE, check_id, sentence)


def _mutants(evidence: Evidence, limits: Limits) -> Iterator[Finding]:
    checks = evidence.run(Kind.REFERENCE).checks
    for run in evidence.mutants:
        yield from _mutant(run, checks, limits)
    have = {run.variant.mutant for run in evidence.mutants}
    for check_id in checks:
        if check_id not in have:
            sentence = f"nothing proves that {check_id} can fail: there is no mutants/{check_id}.patch"
            yield Finding(Fault.CHECK_UNPROVEN, check_id, sentence)


def _mutant(run: VariantRun, checks: tuple[str, ...], limits: Limits) -> Iterator[Finding]:
    own = run.variant.mutant
    if own not in checks:
        yield Finding(Fault.MUTANT_WITHOUT_CHECK, own, f"mutants/{own}.patch is named after no check")
        return
    if run.broken:
        yield Finding(Fault.MUTANT_DOES_NOT_APPLY, own, run.broken)
        return
    if run.passes(own, always=False):
        yield Finding(Fault.MUTANT_SURVIVES, own, f"the mutant of {own} survives: the check passes on it")
    others = [check_id for check_id in run.failed() if check_id != own]
    if len(others) > limits.spill:
        sentence = f"the mutant of {own} fails {len(others)} other checks ({', '.join(others)}); at most {limits.spill}"
        yield Finding(Fault.MUTANT_KILLS_MORE, own, sentence)
    if run.tests is not None and not run.tests.passed:
        sentence = f"the mutant of {own} does not pass the public tests: {run.tests.detail}"
        yield Finding(Fault.MUTANT_BREAKS_TESTS, own, sentence)


def _flaky(evidence: Evidence) -> Iterator[Finding]:
    for run in evidence.runs:
        for check_id in run.checks:
            if run.passes(check_id, always=False) and not run.passes(check_id):
                sentence = f"{check_id} passes and fails on one snapshot of {run.variant.name}: {run.reason(check_id)}"
                yield Finding(Fault.FLAKY, check_id, sentence)


def _public_tests(evidence: Evidence) -> Iterator[Finding]:
    for kind in (Kind.START, Kind.REFERENCE):
        tests = evidence.run(kind).tests
        if tests is not None and not tests.passed:
            sentence = f"the public tests do not pass on the {kind.value}: {tests.detail}"
            yield Finding(Fault.PUBLIC_TESTS, kind.value, sentence)


def _rules(evidence: Evidence) -> Iterator[Finding]:
    text = " ".join(evidence.task.instruction.split())
    for item in evidence.items:
        rule = " ".join(item.rule.split())
        if item.scored and (not rule or rule not in text):
            sentence = f"the rule of {item.id} is not in instruction.md: {rule!r}"
            yield Finding(Fault.RULE_NOT_STATED, item.id, sentence)


def _leaks(evidence: Evidence) -> Iterator[Finding]:
    text = evidence.task.instruction
    for item in evidence.items:
        if _names(text, item.id):
            yield Finding(Fault.INSTRUCTION_LEAK, item.id, f"instruction.md contains the id {item.id}")
    for name in JUDGES_FILES:
        if _names(text, name) and not any(name in path for path in evidence.fixture_paths):
            sentence = f"instruction.md names {name}, which the agent must not know of"
            yield Finding(Fault.INSTRUCTION_LEAK, name, sentence)
    for item in evidence.items:
        for literal in leaked(text, requests(item), evidence.known_text) if item.scored else ():
            sentence = f"instruction.md contains {literal!r}, which {item.id} uses as an input"
            yield Finding(Fault.INSTRUCTION_LEAK, item.id, sentence)


def _start(evidence: Evidence) -> Iterator[Finding]:
    if evidence.fixture_changed:
        yield Finding(Fault.FIXTURE_CHANGED, "fixture/", evidence.fixture_changed)
    for sentence in evidence.history:
        yield Finding(Fault.HISTORY_LEAK, ".git", sentence)


def requests(result: CheckResult) -> tuple[Json, ...]:
    """Return what a check sent to the candidate, as its evidence has it."""
    found = []
    for entry in result.evidence:
        if "call" in entry:
            found.append(entry["call"])
        elif "truncated" in entry:
            found.append(entry["truncated"])
    return tuple(found)


def leaked(instruction: str, sent: Iterable[Json], known_text: str) -> tuple[str, ...]:
    """Return the literals of `sent` that `instruction` contains, each once.

    A word of letters alone is a give-away only as code or in quotes: prose and test data share the language's words.
    """
    marked = " ".join(re.findall(r"`[^`]+`|\"[^\"\n]+\"|^ {4}.*$", instruction, flags=re.MULTILINE))
    found = dict.fromkeys(literal for value in sent for literal in literals(value))
    return tuple(
        literal
        for literal in found
        if literal not in known_text and _names(marked if _is_prose(literal) else instruction, literal)
    )


def literals(value: Json) -> Iterator[str]:
    """Yield the numbers, strings and parts of strings in `value` that are long enough to recognise."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from literals(key)
            yield from literals(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from literals(inner)
    elif isinstance(value, str):
        parts = [part.strip(".:!?") for part in re.split(r"[\s,;\"'`()\[\]{}<>|]+", value)]
        yield from dict.fromkeys(p for p in (value.strip(), *parts) if SHORTEST_LITERAL <= len(p) <= LONGEST_LITERAL)
    elif isinstance(value, int | float) and abs(value) < 10**LONGEST_LITERAL and len(str(value)) >= SHORTEST_LITERAL:
        yield str(value)


def _is_prose(literal: str) -> bool:
    return all(c.isalpha() or c.isspace() for c in literal)


def _names(text: str, name: str) -> bool:
    before, after = (r"(?<![\w-])" if name[0].isalnum() else ""), (r"(?![\w-])" if name[-1].isalnum() else "")
    return re.search(before + re.escape(name) + after, text) is not None
