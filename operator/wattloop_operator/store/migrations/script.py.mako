"""${message}."""

from alembic import op
import sqlalchemy as sa
${imports if imports else ""}

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
# True only if an operator that does not know this migration reads and writes the result correctly: new tables, and
# new columns that may be NULL.
additive = False


def upgrade() -> None:
    """${message}."""
    ${upgrades if upgrades else "pass"}
