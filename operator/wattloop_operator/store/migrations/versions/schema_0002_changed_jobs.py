"""Observations carry what a job may change between them; NULL in rows of older versions."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
additive = True


def upgrade() -> None:
    """Add the columns."""
    op.add_column("observations", sa.Column("template_digest", sa.Text))
    op.add_column("observations", sa.Column("target_metric", sa.Text))
    op.add_column("observations", sa.Column("target_direction", sa.Text))
    op.add_column("observations", sa.Column("target_threshold", sa.Double))
    op.add_column("observations", sa.Column("target_evaluations", sa.BigInteger))
