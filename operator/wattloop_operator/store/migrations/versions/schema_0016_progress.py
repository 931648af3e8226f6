"""The progress of attempts, which the status of their TrainingRecurrences had."""

import sqlalchemy as sa
from alembic import op

from wattloop_operator.store.tables import NAME, UtcDateTime

revision = "0016"
down_revision = "0015"
additive = True


def upgrade() -> None:
    """Create the table; what the objects have of running attempts, their next reports repeat."""
    op.create_table(
        "attempt_progress",
        sa.Column("namespace", NAME, primary_key=True),
        sa.Column("name", NAME, primary_key=True),
        sa.Column("uid", NAME, primary_key=True),
        sa.Column("job_uid", NAME, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("ending", sa.Boolean, nullable=False),
        sa.Column("reported_at", UtcDateTime),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.Index("attempt_progress_by_job", "job_uid"),
        sa.Index("attempt_progress_by_ending", "ending"),
        sa.Index("attempt_progress_by_age", "updated_at"),
    )
