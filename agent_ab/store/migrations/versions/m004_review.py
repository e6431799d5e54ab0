"""Review: what people say of a flip, and snapshots judged again."""

import sqlalchemy as sa
from alembic import op

revision = "m004"
down_revision = "m003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both tables."""
    op.create_table(
        "mark",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.String, nullable=False),
        sa.Column("pair_id", sa.String, nullable=False),
        sa.Column("check_id", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("note", sa.String, nullable=False),
        sa.Column("made_at", sa.String, nullable=False),
        sa.Column("reruns", sa.JSON),
        sa.Column("quarantined", sa.Boolean, nullable=False),
        sa.ForeignKeyConstraint(["run_id", "pair_id"], ["pair.run_id", "pair.id"]),
    )
    op.create_table(
        "regrade",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.String, nullable=False),
        sa.Column("pair_id", sa.String, nullable=False),
        sa.Column("arm", sa.String, nullable=False),
        sa.Column("made_at", sa.String, nullable=False),
        sa.Column("version", sa.String, nullable=False),
        sa.Column("task_sha256", sa.String, nullable=False),
        sa.Column("results", sa.JSON, nullable=False),
        sa.ForeignKeyConstraint(["run_id", "pair_id", "arm"], ["attempt.run_id", "attempt.pair_id", "attempt.arm"]),
    )
