"""Profiles of pipelines say which replica plans them, and until when."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
additive = True


def upgrade() -> None:
    """Add the columns."""
    op.add_column("pipeline_profiles", sa.Column("planner", sa.Text))
    op.add_column("pipeline_profiles", sa.Column("planner_until", sa.DateTime(timezone=True)))
