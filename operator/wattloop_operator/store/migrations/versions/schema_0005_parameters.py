"""Observations carry the values of further parameters; NULL in rows of older versions."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
additive = True


def upgrade() -> None:
    """Add the column."""
    op.add_column("observations", sa.Column("parameters", sa.Text))
