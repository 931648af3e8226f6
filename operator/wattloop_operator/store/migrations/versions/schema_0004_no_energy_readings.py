"""Energy readings are no longer kept: nothing reads them, and every report of a training added rows."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Drop the table."""
    op.drop_index("energy_readings_by_time", table_name="energy_readings")
    op.drop_table("energy_readings")
