"""Pipelines: registered ranks, what they run, profiles of instructions, and the frontiers planned from them."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
additive = True

TIME = sa.DateTime(timezone=True)
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
ATTEMPT = ("job_uid", "recurrence", "attempt")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "pipelines",
        *_attempt(),
        sa.Column("namespace", NAME, nullable=False),
        sa.Column("recurrence_name", NAME, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Index("pipelines_by_age", "updated_at"),
    )
    op.create_table(
        "pipeline_parts",
        *_attempt(),
        sa.Column("digest", NAME, primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
        _of_pipeline(),
    )
    op.create_table(
        "pipeline_ranks",
        *_attempt(),
        sa.Column("rank", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("part", NAME, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        _of_pipeline(),
    )
    op.create_table(
        "pipeline_profiles",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("job_uid", NAME, nullable=False),
        sa.Column("batch_size", sa.BigInteger, nullable=False),
        sa.Column("model", NAME, nullable=False),
        sa.Column("partition", NAME, nullable=False),
        sa.Column("gpu_product", NAME, nullable=False),
        sa.Column("image_digest", NAME, nullable=False),
        sa.Column("frontier_digest", sa.Text),
        sa.Column("frontier", sa.LargeBinary),
        sa.UniqueConstraint(
            "job_uid", "batch_size", "model", "partition", "gpu_product", "image_digest", name="pipeline_profiles_key"
        ),
    )
    op.create_table(
        "pipeline_measurements",
        sa.Column(
            "profile_id", sa.BigInteger, sa.ForeignKey("pipeline_profiles.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("rank", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("process", NAME, primary_key=True),
        sa.Column("recurrence", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )


def _attempt() -> list[sa.Column[Any]]:
    return [
        sa.Column("job_uid", NAME, primary_key=True),
        sa.Column("recurrence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.BigInteger, primary_key=True, autoincrement=False),
    ]


def _of_pipeline() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(ATTEMPT, [f"pipelines.{name}" for name in ATTEMPT], ondelete="CASCADE")
