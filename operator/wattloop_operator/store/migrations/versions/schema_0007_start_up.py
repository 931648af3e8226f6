"""Observations carry what the attempt used before its epochs; NULL in rows of older versions."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
additive = True


def upgrade() -> None:
    """Add the columns."""
    op.add_column("observations", sa.Column("start_up_energy_joules", sa.Double))
    op.add_column("observations", sa.Column("start_up_time_seconds", sa.Double))
