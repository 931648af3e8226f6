"""An observation says whether its attempt was to measure power limits, and whether it went on from an earlier one."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
additive = True


def upgrade() -> None:
    """Add the columns; of earlier attempts they are not known."""
    op.add_column("observations", sa.Column("measures_power_limits", sa.Boolean))
    op.add_column("observations", sa.Column("resumed", sa.Boolean))
