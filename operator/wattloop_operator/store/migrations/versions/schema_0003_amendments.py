"""What attempts used as it was known after their outcome."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
# An operator of an older schema leaves the new table alone.
additive = True

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "amendments",
        sa.Column("job_uid", NAME, primary_key=True),
        sa.Column("recurrence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("energy_joules", sa.Double, nullable=False),
        sa.Column("time_seconds", sa.Double, nullable=False),
    )
