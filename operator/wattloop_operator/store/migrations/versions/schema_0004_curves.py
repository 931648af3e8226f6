"""Observations carry the curve of their metric; NULL in rows of older versions."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
additive = True


def upgrade() -> None:
    """Add the column."""
    op.add_column("observations", sa.Column("curve", sa.Text))
