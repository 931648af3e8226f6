"""Each decision with what it was made from, so that it can be made again."""

import sqlalchemy as sa
from alembic import op

from wattloop_operator.store.tables import NAME, SERIAL

revision = "0015"
down_revision = "0014"
additive = True


def upgrade() -> None:
    """Create the table; of earlier decisions nothing was kept."""
    op.create_table(
        "decisions",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("job_uid", NAME, nullable=False),
        sa.Column("recurrence", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("namespace", NAME, nullable=False),
        sa.Column("job_name", NAME, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("job_uid", "recurrence", "attempt", name="decisions_key"),
    )
