"""An observation says what the trials of probes used."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
additive = True


def upgrade() -> None:
    """Add the columns; no attempt so far has probed."""
    op.add_column("observations", sa.Column("probe_trials", sa.BigInteger))
    op.add_column("observations", sa.Column("probe_energy_joules", sa.Double))
    op.add_column("observations", sa.Column("probe_time_seconds", sa.Double))
