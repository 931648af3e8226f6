"""Observations say what the frequency plan of a pipeline did; NULL without one, and in rows of older versions."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
additive = True


def upgrade() -> None:
    """Add the column."""
    op.add_column("observations", sa.Column("pipeline", sa.Text))
