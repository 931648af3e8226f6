"""An observation says whether its attempt was to measure power limits."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
additive = True


def upgrade() -> None:
    """Add the column; of earlier attempts it is not known."""
    op.add_column("observations", sa.Column("measures_power_limits", sa.Boolean))
