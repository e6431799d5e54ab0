"""The first schema: run, pair, attempt, check_result, exchange, evidence."""

import sqlalchemy as sa
from alembic import op

revision = "m001"
down_revision = None
branch_labels = None
depends_on = None

_ATTEMPT = (["run_id", "pair_id", "arm"], ["attempt.run_id", "attempt.pair_id", "attempt.arm"])


def upgrade() -> None:
    """Create every table."""
    op.create_table(
        "run",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("created_at", sa.String, nullable=False),
        sa.Column("version", sa.String, nullable=False),
        sa.Column("profile", sa.String, nullable=False),
        sa.Column("plan", sa.JSON, nullable=False),
    )
    op.create_table(
        "pair",
        sa.Column("run_id", sa.String, sa.ForeignKey("run.id"), primary_key=True),
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("task", sa.String, nullable=False, index=True),
        sa.Column("seed", sa.Integer, nullable=False),
        sa.Column("repeat", sa.Integer, nullable=False),
        sa.Column("first_arm", sa.String, nullable=False),
        sa.Column("variable", sa.String, nullable=False),
        sa.Column("outcome", sa.String, nullable=False),
        sa.Column("proof", sa.JSON, nullable=False),
        sa.Column("flips", sa.JSON, nullable=False),
        sa.Column("findings", sa.JSON, nullable=False),
        sa.Column("saved_at", sa.String, nullable=False),
    )
    op.create_table(
        "attempt",
        *_key(),
        sa.Column("outcome", sa.String, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("started_at", sa.String, nullable=False),
        sa.Column("duration_s", sa.Float, nullable=False),
        sa.Column("agent_s", sa.Float),
        sa.Column("agent_end", sa.String),
        sa.Column("passed", sa.Integer, nullable=False),
        sa.Column("scored", sa.Integer, nullable=False),
        sa.Column("edited_production", sa.Boolean),
        sa.Column("invalid_reason", sa.String, nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.ForeignKeyConstraint(["run_id", "pair_id"], ["pair.run_id", "pair.id"]),
    )
    op.create_table(
        "check_result",
        *_key(),
        sa.Column("check_id", sa.String, primary_key=True),
        sa.Column("scored", sa.Boolean, primary_key=True),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("rule", sa.String, nullable=False),
        sa.Column("duration_s", sa.Float, nullable=False),
        sa.ForeignKeyConstraint(*_ATTEMPT),
    )
    op.create_table(
        "exchange",
        *_key(),
        sa.Column("ordinal", sa.Integer, primary_key=True),
        sa.Column("path", sa.String, nullable=False),
        sa.Column("agent_sha256", sa.String, nullable=False),
        sa.Column("server_sha256", sa.String, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("finish_reason", sa.String),
        sa.Column("error", sa.String),
        sa.Column("prompt_n", sa.Integer),
        sa.Column("prompt_ms", sa.Float),
        sa.Column("predicted_n", sa.Integer),
        sa.Column("predicted_ms", sa.Float),
        sa.Column("cache_n", sa.Integer),
        sa.Column("draft_n", sa.Integer),
        sa.Column("draft_n_accepted", sa.Integer),
        sa.Column("started_s", sa.Float, nullable=False),
        sa.Column("first_byte_s", sa.Float),
        sa.Column("last_byte_s", sa.Float),
        sa.Column("tool_calls", sa.Integer, nullable=False),
        sa.Column("concurrent", sa.Boolean, nullable=False),
        sa.Column("streamed", sa.Boolean, nullable=False),
        sa.Column("pinned", sa.JSON, nullable=False),
        sa.ForeignKeyConstraint(*_ATTEMPT),
    )
    op.create_table(
        "evidence",
        *_key(),
        sa.Column("path", sa.String, primary_key=True),
        sa.Column("sha256", sa.String, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("mode", sa.Integer, nullable=False),
        sa.ForeignKeyConstraint(*_ATTEMPT),
    )


def _key() -> tuple[sa.Column[str], ...]:
    return tuple(sa.Column(name, sa.String, primary_key=True) for name in ("run_id", "pair_id", "arm"))
