"""The vocabulary: frozen nouns that every other module speaks. Imports nothing of ours."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

Json = Any
"""A value that came from or goes to JSON."""


class Arm(StrEnum):
    """One full server setting; the declared variable is the only difference between the two."""

    BASELINE = "baseline"
    CANDIDATE = "candidate"


class Outcome(StrEnum):
    """What an attempt came to. INVALID says nothing about the arm."""

    PASS = "PASS"
    FAIL = "FAIL"
    INVALID = "INVALID"


class PairOutcome(StrEnum):
    """What a pair came to. VOID: either attempt INVALID, or identity not proven."""

    BOTH_PASS = "BOTH_PASS"
    BOTH_FAIL = "BOTH_FAIL"
    FIXED = "FIXED"
    BROKEN = "BROKEN"
    VOID = "VOID"


NOT_PLAYED = "not played"
"""What the reason of an INVALID attempt begins with when it was its partner that broke."""


class RunKind(StrEnum):
    """What a run was asked to be."""

    PAIR = "pair"
    SUITE = "suite"
    AA = "aa"
    CONTROLS = "controls"
    IMPORT = "import"


class RunStatus(StrEnum):
    """How a run stands. STOPPED: at a block's end, or interrupted; it can go on."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"


class ServerLife(StrEnum):
    """How long a model server lives; reported faults of speculation build up over its life."""

    FRESH = "fresh"
    PER_TASK = "per-task"
    PER_RUN = "per-run"


class SeedMode(StrEnum):
    """How the sampling seed of each request is chosen (the same in both arms)."""

    FIXED = "fixed"
    PER_TURN = "per-turn"


class SandboxKind(StrEnum):
    """What the agent and the checks run in."""

    BWRAP = "bwrap"
    NONE = "none"


class AgentEnd(StrEnum):
    """How the agent's process ended. Every one of these is the arm's own result."""

    COMPLETED = "completed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"


class CheckStatus(StrEnum):
    """The verdict on one check or probe."""

    PASS = "pass"
    FAIL = "fail"


class Step(StrEnum):
    """The steps of an attempt, in their order."""

    WORKSPACE = "workspace"
    SERVER = "server"
    PROXY = "proxy"
    AGENT = "agent"
    SNAPSHOT = "snapshot"
    CHECKS = "checks"


@dataclass(frozen=True, slots=True)
class Event:
    """One sign of life, for whoever shows progress."""

    arm: Arm | None
    step: Step | None
    message: str = ""
    turns: int = 0
    """Exchanges finished so far."""
    tokens: int = 0
    """Generated tokens so far."""
    elapsed_s: float = 0.0
    """Since the step began."""
    limit_s: float | None = None
    """The step's time limit."""
    lasting: bool = False
    """Worth a line that stays."""
    who: str = ""
    """The candidate's name, where there are several."""


Observer = Callable[[Event], None]
"""Receives events; must return quickly and never raise."""


@dataclass(frozen=True, slots=True)
class FileDigest:
    """One file of a workspace or of the evidence."""

    path: str
    """POSIX path, relative to the workspace or to the attempt's directory."""
    sha256: str
    size: int
    mode: int = 0o644
    """Permission bits, as in git: 0o644, 0o755."""


@dataclass(frozen=True, slots=True)
class Timings:
    """llama-server's own account of one generation. Durations in milliseconds, counts in tokens."""

    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    cache_n: int
    draft_n: int | None = None
    """Drafted tokens; None (not 0) when nothing was drafted."""
    draft_n_accepted: int | None = None


@dataclass(frozen=True, slots=True)
class Drafting:
    """What a server counted of its speculation over some time."""

    drafts: int
    """Verification steps that had a draft to verify."""
    drafted: int
    """Drafted tokens."""
    accepted: int
    accepted_at: tuple[int, ...] = ()
    """Accepted tokens by their position in the draft; empty when the server does not tell."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One recorded request with its response, as `proxy/wire.py` wrote it."""

    index: int
    path: str
    agent_sha256: str
    """sha256 of the exact body that left the agent."""
    server_sha256: str
    """sha256 of the exact body that reached the server (after pins)."""
    request: Json
    """The body as it reached the server, parsed."""
    pinned: Mapping[str, Json]
    """Keys that the proxy wrote into the request."""
    status: int | None
    """HTTP status; None when the server closed without answering."""
    content: str
    reasoning: str
    tool_calls: tuple[Json, ...]
    finish_reason: str | None
    usage: Mapping[str, int] | None
    timings: Timings | None
    error: str | None
    """A mid-stream error, an HTTP error's message, or why the connection broke."""
    started_s: float
    """Seconds since the proxy started, when the request was complete at the proxy."""
    first_byte_s: float | None
    last_byte_s: float | None
    concurrent: bool
    """Another exchange was open when this one began; since format 2 of the log such a request is refused."""
    streamed: bool
    model: str | None = None
    """What the reply calls the model that wrote it."""


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """A request that the proxy answered itself and the server never saw."""

    method: str
    path: str
    reason: str
    """`path`, `identity` (differs from the first arm's first request), `unreadable`, `concurrent` (another was open),
    `concurrent-first` (likewise, before any reply: the agent program itself did it) or `limit` (too much evidence)."""
    agent_sha256: str
    """Empty when the body never came whole."""
    request: Json = None
    """The parsed body of the request that broke identity, so that the difference can be shown; else None."""


@dataclass(frozen=True, slots=True)
class ExchangeLog:
    """Everything that passed the proxy in one attempt."""

    exchanges: tuple[Exchange, ...]
    refused: tuple[RefusedRequest, ...]
    bodies: int | None = None
    """The log is so large that only its first exchanges, so many, come with their bodies; None: all do."""
    remarks: tuple[str, ...] = ()
    """What the server's own log says otherwise; only in the attempt that was just played, then among the findings."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check's (or probe's) verdict on one snapshot, with its evidence."""

    id: str
    status: CheckStatus
    reason: str
    """One sentence."""
    rule: str
    """The sentence of the instruction that the check enforces."""
    scored: bool
    """True for a check, False for a probe."""
    duration_s: float
    evidence: Json
    """Inputs, replies and state, JSON-able and size-capped."""


@dataclass(frozen=True, slots=True)
class AgentRun:
    """What is known about the agent's process."""

    end: AgentEnd
    exit_code: int | None
    duration_s: float
    """Wall clock of the agent's process only."""
    time_limit_s: float
    note: str = ""
    """Last words worth a reader's time: the error line, or which budget ended it."""
    output_cut: bool = False
    """It printed more than is kept of a transcript."""


@dataclass(frozen=True, slots=True)
class Patch:
    """What the agent changed, taken with a trusted git directory."""

    text: str
    files: tuple[str, ...]
    """Changed paths, sorted."""
    edited_production: bool
    """Whether a file that the task calls production code was changed."""
    flags: tuple[str, ...] = ()
    """What was left out or truncated, in words."""


@dataclass(frozen=True, slots=True)
class RanFile:
    """A file that a server ran or loaded, as it was when the server was proven."""

    what: str
    path: str
    device: int
    inode: int
    size: int
    mtime_ns: int
    mapped: bool
    """A process of the server had it mapped then; False: it was read, and is known by its path."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What was proven about a started server; compared between the arms."""

    argv: tuple[str, ...]
    """The command line without the parts that differ by attempt (port)."""
    environment: Mapping[str, str]
    """The child's whole environment, the key's value replaced by `<key>`."""
    binary_sha256: str
    """Of llama-server and the shared libraries beside it."""
    build: str
    model_sha256: str
    chat_template_sha256: str
    props: Mapping[str, Json]
    """The parts of /props and of the canary's generation settings that must agree."""
    omitted_flags: tuple[str, ...]
    """Flags of the profile that this build lacks."""
    spec_type: str
    """The declared `--spec-type`."""
    draft_n: int | None
    """Tokens drafted in the canary; None when none were."""
    draft_n_accepted: int | None
    slots_speculative: bool
    log_line: str
    """The server's own line about its speculation, or empty."""
    speculation_proven: bool
    """The declared speculation (or its absence) was shown by the canary, /slots or the log."""
    proof: str
    """The proof in one sentence."""
    draft_sha256: str = ""
    """Of the separate draft model, or empty."""
    unproven: tuple[str, ...] = ()
    """What nobody proved of a server that somebody else started; with any of it, the pair is UNPROVEN."""
    ran: tuple[RanFile, ...] = ()
    """The program, its libraries and the model's files, each with the planned content at the attempt's start and end."""


@dataclass(frozen=True, slots=True)
class CheckCount:
    """How many checks passed, where nothing more is known."""

    passed: int
    scored: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """One arm's execution of one task with one seed."""

    arm: Arm
    outcome: Outcome
    position: int
    """0 when this arm was played first in its pair, 1 when second."""
    started_at: str
    """UTC, ISO 8601."""
    duration_s: float
    invalid_reason: str
    """Empty unless INVALID."""
    fixture_commit: str
    manifest_sha256: str
    """Of the workspace's (path, mode, sha256) list just before the agent started."""
    server: ServerFacts | None
    agent: AgentRun | None
    log: ExchangeLog | None
    patch: Patch | None
    checks: tuple[CheckResult, ...]
    """Checks and probes, in the task's order."""
    world: Mapping[str, Json]
    """What surrounded the agent: sandbox kind, limits, paths, locale, agent version; compared between the arms."""
    evidence: tuple[FileDigest, ...]
    settings: Mapping[str, Json] = field(default_factory=dict)
    """The arm's resolved settings."""
    life_position: int = 0
    """How many attempts its server had served before; always 0 when every attempt has a fresh one."""
    machine: Json = None
    """What the machine was and in what state, as `machine.record` saw it; None when it was not looked at."""
    drafting: Drafting | None = None
    """What the server counted of its drafts while the agent worked; None: it does not count them."""
    counted: CheckCount | None = None
    """Only of an imported attempt whose checks are not known one by one."""

    @property
    def scored(self) -> tuple[CheckResult, ...]:
        """Return the checks, without the probes."""
        return tuple(c for c in self.checks if c.scored)

    @property
    def passed(self) -> int:
        """Return how many checks passed."""
        return self.counted.passed if self.counted else sum(c.status is CheckStatus.PASS for c in self.scored)

    @property
    def total(self) -> int:
        """Return how many checks were scored."""
        return self.counted.scored if self.counted else len(self.scored)


@dataclass(frozen=True, slots=True)
class ProofLine:
    """One line of the proof that a pair is valid."""

    name: str
    ok: bool
    detail: str
    unproven: bool = False
    """Nothing contradicts it, and nobody proved it."""


@dataclass(frozen=True, slots=True)
class Flip:
    """A check whose verdict differs between the two attempts of one pair."""

    check_id: str
    baseline: CheckStatus
    candidate: CheckStatus


@dataclass(frozen=True, slots=True)
class Pair:
    """Two attempts with the same task, seed and repeat; the unit of all statistics."""

    run: str
    id: str
    """Unique within its run; `<run>/<id>` is its name and its directory below `runs/`."""
    task: str
    seed: int
    repeat: int
    first_arm: Arm
    variable: str
    """The declared variable."""
    baseline: Attempt
    candidate: Attempt
    proof: tuple[ProofLine, ...]
    outcome: PairOutcome
    flips: tuple[Flip, ...]
    findings: tuple[str, ...]
    """Facts that do not void the pair but that a reader must see."""
    divergence: Json = None
    """Where and why the two arms parted, as `parting.to_json` wrote it; None when there was nothing to compare."""
    aftermath: Json = None
    """How they went on from there, as `aftermath.to_json` wrote it."""
    judgement: Json = None
    """What the independent judge says of the difference, and both arms' symptoms, as `judgement.to_json` wrote it."""
    block: int = 0
    """Number of the block (one seed over all tasks) within the run."""
    attempted: int = 1
    """Which try of the planned pair this is; the tries before it are VOID."""
    proven: bool = True
    """False: nobody proved that only the declared variable differed (imported data)."""
    again: bool = False
    """The first pair of a server's life, played once more at its end: shows ageing, is no observation of its own."""

    @property
    def name(self) -> str:
        """Return the name that the command line takes."""
        return f"{self.run}/{self.id}"

    @property
    def valid(self) -> bool:
        """Return whether the pair counts."""
        return self.outcome is not PairOutcome.VOID

    @property
    def checks_known(self) -> bool:
        """Return whether each check is known, not only how many passed."""
        return self.baseline.counted is None and self.candidate.counted is None

    def attempt(self, arm: Arm) -> Attempt:
        """Return the attempt of `arm`."""
        return self.baseline if arm is Arm.BASELINE else self.candidate


@dataclass(frozen=True, slots=True)
class Task:
    """What the agent is asked, what it starts from, and how it is judged. Loaded by `tasks.load`."""

    id: str
    title: str
    root: Path
    instruction: str
    fixture_commit: str
    """The commit id that the fixture must come to."""
    fixture_manifest: str
    """sha256 of the fixture's manifest."""
    import_path: str
    """Directory in the workspace, relative, that the checks append to `sys.path`."""
    production: tuple[str, ...]
    """Glob patterns of production code."""
    public_tests: tuple[str, ...]
    """argv of the public test suite, run in the workspace."""
    check_timeout_s: float
    starting_passes: str
    """The id of the one check that the starting code passes."""
    sha256: str = ""
    """Of its whole directory, as `tasks.private` copied it for a run; empty: the user's own directory."""
