"""The verdict: which conversations are the same."""

import sqlalchemy as sa
from alembic import op

revision = "m005"
down_revision = "m004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of attempts from before, the replies are in their exchange logs only."""
    op.add_column("attempt", sa.Column("conversation_sha256", sa.String, nullable=False, server_default=""))
