"""Pipelines name their profile, and profiles say when an attempt last began to use them: the oldest give way."""

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
additive = True


def upgrade() -> None:
    """Add the columns; profiles that exist count as used now."""
    op.add_column("pipelines", sa.Column("profile_id", sa.BigInteger))
    used_at = sa.Column("used_at", sa.DateTime(timezone=True))
    op.add_column("pipeline_profiles", used_at)
    profiles = sa.table("pipeline_profiles", sa.column("used_at", sa.DateTime(timezone=True)))
    op.execute(profiles.update().values(used_at=datetime.now(UTC)))
