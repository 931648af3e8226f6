"""What pods used of GPUs, in the word of their nodes' agents."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
# An operator of an older schema leaves the new table alone.
additive = True

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "pod_energies",
        sa.Column("ledger", NAME, primary_key=True),
        sa.Column("pod_uid", NAME, primary_key=True),
        sa.Column("container", NAME, primary_key=True),
        sa.Column("gpu_uuid", NAME, primary_key=True),
        sa.Column("job_uid", NAME, nullable=False),
        sa.Column("recurrence", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("pod", sa.Text, nullable=False),
        sa.Column("gpu_product", sa.Text, nullable=False),
        sa.Column("shared", sa.Boolean, nullable=False),
        sa.Column("energy_millijoules", sa.BigInteger, nullable=False),
        sa.Column("uncertainty_millijoules", sa.BigInteger, nullable=False),
        sa.Column("start_time_seconds", sa.Double, nullable=False),
        sa.Column("time_seconds", sa.Double, nullable=False),
        sa.Column("ended", sa.Boolean, nullable=False),
        sa.Column("reported_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("pod_energies_by_attempt", "pod_energies", ["job_uid", "recurrence", "attempt"])
    op.create_index("pod_energies_by_age", "pod_energies", ["reported_at"])
