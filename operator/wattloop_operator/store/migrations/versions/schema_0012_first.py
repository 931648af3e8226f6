"""The first schema. No migration creates its tables: `schema.py` creates those of `tables.py` in an empty database."""

revision = "0012"
down_revision = None


def upgrade() -> None:
    """Change nothing: a database of this schema is the oldest that is migrated."""
