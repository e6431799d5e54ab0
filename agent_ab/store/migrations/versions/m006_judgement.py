"""What the independent judge says of a pair's first difference, and both arms' symptoms."""

import sqlalchemy as sa
from alembic import op

revision = "m006"
down_revision = "m005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; pairs from before were not judged."""
    op.add_column("pair", sa.Column("judgement", sa.JSON))
