"""The tables as SQLModel classes. Their history is in migrations/versions; a test keeps the two equal."""

from sqlalchemy import JSON, Column, ForeignKeyConstraint
from sqlmodel import Field, SQLModel

from agent_ab.model import Json


def _of_pair() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["run_id", "pair_id"], ["pair.run_id", "pair.id"])


def _of_attempt() -> ForeignKeyConstraint:
    key = ("run_id", "pair_id", "arm")
    return ForeignKeyConstraint(key, [f"attempt.{name}" for name in key])


class RunRow(SQLModel, table=True):
    """One invocation: its plan, written before anything starts."""

    __tablename__ = "run"
    id: str = Field(primary_key=True)
    created_at: str
    version: str
    profile: str
    kind: str = "pair"
    """What was asked for: `pair`, `suite`, `aa`, `controls`, `import`."""
    status: str = "running"
    """`running`, `finished`, or `stopped` (at a block end, or interrupted); `note` says why."""
    note: str = ""
    ended_at: str | None = None
    plan: Json = Field(sa_column=Column(JSON, nullable=False))
    plan_sha256: str = ""
    blocks: int = 1
    """How many blocks are planned by now; `--extend` adds to them, the plan itself never changes."""
    policy: Json = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    """The decision's policy as it stood before the run."""
    policy_sha256: str | None = None


class PairRow(SQLModel, table=True):
    """One finished pair; a VOID one that was played again stays, its successor's id ends in `.2`, `.3`."""

    __tablename__ = "pair"
    run_id: str = Field(primary_key=True, foreign_key="run.id")
    id: str = Field(primary_key=True)
    task: str = Field(index=True)
    seed: int
    repeat: int
    block: int = 0
    """Number of the block, one seed over all tasks, within the run; a run stops and grows in whole blocks."""
    attempted: int = 1
    """Which try of the planned pair this is."""
    proven: bool = True
    """False: nobody proved that only the declared variable differed (imported data)."""
    again: bool = False
    """The first pair of a server's life, played once more at its end: shows ageing, is no observation of its own."""
    first_arm: str
    variable: str
    outcome: str
    proof: Json = Field(sa_column=Column(JSON, nullable=False))
    flips: Json = Field(sa_column=Column(JSON, nullable=False))
    findings: Json = Field(sa_column=Column(JSON, nullable=False))
    divergence: Json = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    aftermath: Json = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    judgement: Json = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    saved_at: str


class AttemptRow(SQLModel, table=True):
    """One attempt of a pair; `body` holds what no query asks for."""

    __tablename__ = "attempt"
    __table_args__ = (_of_pair(),)
    run_id: str = Field(primary_key=True)
    pair_id: str = Field(primary_key=True)
    arm: str = Field(primary_key=True)
    outcome: str
    position: int
    life_position: int = 0
    """How many attempts its server had served before."""
    started_at: str
    duration_s: float
    agent_s: float | None
    agent_end: str | None
    passed: int
    scored: int
    edited_production: bool | None
    invalid_reason: str
    conversation_sha256: str = ""
    """Of all that the model said, in order; empty when it is not known, or when the row is older than the column."""
    body: Json = Field(sa_column=Column(JSON, nullable=False))


class CheckRow(SQLModel, table=True):
    """One check's or probe's verdict in one attempt."""

    __tablename__ = "check_result"
    __table_args__ = (_of_attempt(),)
    run_id: str = Field(primary_key=True)
    pair_id: str = Field(primary_key=True)
    arm: str = Field(primary_key=True)
    check_id: str = Field(primary_key=True)
    scored: bool = Field(primary_key=True)
    ordinal: int
    status: str
    reason: str
    rule: str
    duration_s: float


class ExchangeRow(SQLModel, table=True):
    """One exchange in summary; the bodies are in the attempt's exchange log."""

    __tablename__ = "exchange"
    __table_args__ = (_of_attempt(),)
    run_id: str = Field(primary_key=True)
    pair_id: str = Field(primary_key=True)
    arm: str = Field(primary_key=True)
    ordinal: int = Field(primary_key=True)
    path: str
    agent_sha256: str
    server_sha256: str
    status: int | None
    finish_reason: str | None
    error: str | None
    prompt_n: int | None
    prompt_ms: float | None
    predicted_n: int | None
    predicted_ms: float | None
    cache_n: int | None
    draft_n: int | None
    draft_n_accepted: int | None
    started_s: float
    first_byte_s: float | None
    last_byte_s: float | None
    tool_calls: int
    concurrent: bool
    streamed: bool
    pinned: Json = Field(sa_column=Column(JSON, nullable=False))


class EvidenceRow(SQLModel, table=True):
    """One evidence file of an attempt, relative to the attempt's directory."""

    __tablename__ = "evidence"
    __table_args__ = (_of_attempt(),)
    run_id: str = Field(primary_key=True)
    pair_id: str = Field(primary_key=True)
    arm: str = Field(primary_key=True)
    path: str = Field(primary_key=True)
    sha256: str
    size: int
    mode: int


class MarkRow(SQLModel, table=True):
    """What a person says of one flip. Of several marks on the same flip the last one stands; none is deleted."""

    __tablename__ = "mark"
    __table_args__ = (_of_pair(),)
    id: int | None = Field(default=None, primary_key=True)
    run_id: str
    pair_id: str
    check_id: str
    kind: str
    """`real`, `flaky check`, `environment`."""
    note: str = ""
    made_at: str
    reruns: Json = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    """Of a `flaky check`: its verdicts on both frozen snapshots, `{"baseline": [...], "candidate": [...]}`."""
    quarantined: bool = False
    """The check disagreed with itself on the same snapshot: it counts in neither arm."""


class RegradeRow(SQLModel, table=True):
    """One attempt's snapshot judged again by the checks of a later day; the first results stay where they are."""

    __tablename__ = "regrade"
    __table_args__ = (_of_attempt(),)
    id: int | None = Field(default=None, primary_key=True)
    run_id: str
    pair_id: str
    arm: str
    made_at: str
    version: str
    task_sha256: str
    """Of the task as it stood then."""
    results: Json = Field(sa_column=Column(JSON, nullable=False))
