"""Suites: what kind of run, its policy, how it ended; blocks, tries and proof of a pair; a server's life."""

import sqlalchemy as sa
from alembic import op

revision = "m003"
down_revision = "m002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; what was there before is single pairs, finished, proven, played once on a fresh server."""
    op.add_column("run", sa.Column("kind", sa.String, nullable=False, server_default="pair"))
    op.add_column("run", sa.Column("status", sa.String, nullable=False, server_default="finished"))
    op.add_column("run", sa.Column("note", sa.String, nullable=False, server_default=""))
    op.add_column("run", sa.Column("ended_at", sa.String))
    op.add_column("run", sa.Column("plan_sha256", sa.String, nullable=False, server_default=""))
    op.add_column("run", sa.Column("blocks", sa.Integer, nullable=False, server_default="1"))
    op.add_column("run", sa.Column("policy", sa.JSON))
    op.add_column("run", sa.Column("policy_sha256", sa.String))
    op.add_column("pair", sa.Column("block", sa.Integer, nullable=False, server_default="0"))
    op.add_column("pair", sa.Column("attempted", sa.Integer, nullable=False, server_default="1"))
    op.add_column("pair", sa.Column("proven", sa.Boolean, nullable=False, server_default=sa.true()))
    op.add_column("pair", sa.Column("again", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("attempt", sa.Column("life_position", sa.Integer, nullable=False, server_default="0"))
