"""Where a pair's arms parted, and how they went on."""

import sqlalchemy as sa
from alembic import op

revision = "m002"
down_revision = "m001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the two columns; pairs from before have neither."""
    op.add_column("pair", sa.Column("divergence", sa.JSON))
    op.add_column("pair", sa.Column("aftermath", sa.JSON))
