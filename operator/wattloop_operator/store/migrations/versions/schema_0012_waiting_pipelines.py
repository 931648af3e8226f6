"""The row of a pipeline says whether it waits for the planner; no replica claims its profile any more.

Pipelines of attempts are stored in another form since. Their rows are deleted: ranks that still run register again.
Profiles and measurements stay.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Change the columns, and delete the pipelines."""
    op.execute("DELETE FROM pipeline_ranks")
    op.execute("DELETE FROM pipeline_parts")
    op.execute("DELETE FROM pipelines")
    op.add_column("pipelines", sa.Column("waits_for_plan", sa.Boolean))
    op.drop_column("pipeline_profiles", "planner")
    op.drop_column("pipeline_profiles", "planner_until")
