"""Observations carry the digest of their image; NULL in rows of older versions."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
additive = True


def upgrade() -> None:
    """Add the column."""
    op.add_column("observations", sa.Column("image_digest", sa.Text))
