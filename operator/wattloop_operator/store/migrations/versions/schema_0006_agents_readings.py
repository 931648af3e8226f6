"""Energies of pods carry the time of the reading and the GPU's maximum power limit; NULL in rows of older versions."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
additive = True


def upgrade() -> None:
    """Add the columns."""
    op.add_column("pod_energies", sa.Column("measured_at", sa.DateTime(timezone=True)))
    op.add_column("pod_energies", sa.Column("max_power_limit_watts", sa.Double))
