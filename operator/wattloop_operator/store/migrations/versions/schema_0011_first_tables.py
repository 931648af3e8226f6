"""The first tables. Their number is that of the last schema of the development versions, which had the same tables."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = None

TIME = sa.DateTime(timezone=True)
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
ATTEMPT = ("job_uid", "recurrence", "attempt")


def upgrade() -> None:
    """Create the tables in an empty database."""
    _marker()
    _observations()
    _power_profiles()
    _pod_energies()
    _pipelines()
    _pipeline_profiles()
    _objects()


def _marker() -> None:
    op.create_table(
        "wattloop_database",
        sa.Column("only_row", sa.Integer, primary_key=True),
        sa.Column("product", sa.Text, nullable=False),
        sa.Column("schema_version", sa.Integer, nullable=False),
        sa.Column("compatible_from", sa.Integer, nullable=False),
        sa.Column("product_version", sa.Text, nullable=False),
        sa.Column("migrated_at", TIME, nullable=False),
        sa.CheckConstraint("only_row = 1", name="wattloop_database_one_row"),
    )


def _observations() -> None:
    op.create_table(
        "observations",
        *_attempt(),
        sa.Column("namespace", NAME, nullable=False),
        sa.Column("job_name", NAME, nullable=False),
        sa.Column("recurrence_name", NAME, nullable=False),
        sa.Column("batch_size", sa.BigInteger, nullable=False),
        sa.Column("power_limit_watts", sa.Double),
        sa.Column("result", sa.Text, nullable=False),
        sa.Column("epochs", sa.Double, nullable=False),
        sa.Column("metric", sa.Double),
        sa.Column("energy_joules", sa.Double, nullable=False),
        sa.Column("time_seconds", sa.Double, nullable=False),
        sa.Column("max_power_watts", sa.Double, nullable=False),
        sa.Column("gpu_product", sa.Text, nullable=False),
        sa.Column("gpu_count", sa.BigInteger, nullable=False),
        sa.Column("epoch_energy_joules", sa.Double),
        sa.Column("epoch_time_seconds", sa.Double),
        sa.Column("attribution", sa.Text, nullable=False),
        sa.Column("decision_kind", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("scheduled_at", TIME, nullable=False),
        sa.Column("finished_at", TIME, nullable=False),
        sa.Column("template_digest", sa.Text),
        sa.Column("target_metric", sa.Text, nullable=False),
        sa.Column("target_direction", sa.Text, nullable=False),
        sa.Column("target_threshold", sa.Double, nullable=False),
        sa.Column("target_evaluations", sa.BigInteger, nullable=False),
        sa.Column("image_digest", sa.Text),
        sa.Column("curve", sa.Text),
        sa.Column("parameters", sa.Text),
        sa.Column("start_up_energy_joules", sa.Double),
        sa.Column("start_up_time_seconds", sa.Double),
        sa.Column("pipeline", sa.Text),
        sa.Index("observations_by_name", "namespace", "job_name"),
    )
    op.create_table(
        "late_usages",
        *_attempt(),
        sa.Column("energy_joules", sa.Double, nullable=False),
        sa.Column("time_seconds", sa.Double, nullable=False),
    )


def _power_profiles() -> None:
    key = ("job_uid", "batch_size", "gpu_product", "gpu_count", "image_digest")
    op.create_table(
        "power_profiles",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("job_uid", NAME, nullable=False),
        sa.Column("batch_size", sa.BigInteger, nullable=False),
        sa.Column("gpu_product", NAME, nullable=False),
        sa.Column("gpu_count", sa.BigInteger, nullable=False),
        sa.Column("image_digest", NAME, nullable=False),
        sa.UniqueConstraint(*key, name="power_profiles_key"),
    )
    op.create_table(
        "power_measurements",
        _of_profile("power_profiles"),
        sa.Column("power_limit_watts", sa.Double, primary_key=True),
        sa.Column("energy_joules", sa.Double, nullable=False),
        sa.Column("time_seconds", sa.Double, nullable=False),
        sa.Column("epochs", sa.Double, nullable=False),
    )


def _pod_energies() -> None:
    op.create_table(
        "pod_energies",
        sa.Column("ledger", NAME, primary_key=True),
        sa.Column("pod_uid", NAME, primary_key=True),
        sa.Column("container", NAME, primary_key=True),
        sa.Column("gpu_uuid", NAME, primary_key=True),
        sa.Column("job_uid", NAME, nullable=False),
        sa.Column("recurrence", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("pod", sa.Text, nullable=False),
        sa.Column("gpu_product", sa.Text, nullable=False),
        sa.Column("shared", sa.Boolean, nullable=False),
        sa.Column("energy_millijoules", sa.BigInteger, nullable=False),
        sa.Column("uncertainty_millijoules", sa.BigInteger, nullable=False),
        sa.Column("start_time_seconds", sa.Double, nullable=False),
        sa.Column("time_seconds", sa.Double, nullable=False),
        sa.Column("ended", sa.Boolean, nullable=False),
        sa.Column("reported_at", TIME, nullable=False),
        sa.Column("measured_at", TIME),
        sa.Column("max_power_limit_watts", sa.Double),
        sa.Index("pod_energies_by_attempt", *ATTEMPT),
        sa.Index("pod_energies_by_age", "reported_at"),
    )


def _pipelines() -> None:
    op.create_table(
        "pipelines",
        *_attempt(),
        sa.Column("namespace", NAME, nullable=False),
        sa.Column("recurrence_name", NAME, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("profile_id", sa.BigInteger),
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


def _pipeline_profiles() -> None:
    key = ("job_uid", "batch_size", "model", "partition", "gpu_product", "image_digest")
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
        sa.Column("planner", sa.Text),
        sa.Column("planner_until", TIME),
        sa.Column("used_at", TIME),
        sa.UniqueConstraint(*key, name="pipeline_profiles_key"),
    )
    op.create_table(
        "pipeline_measurements",
        _of_profile("pipeline_profiles"),
        sa.Column("rank", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("process", NAME, primary_key=True),
        sa.Column("recurrence", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )


def _objects() -> None:
    op.create_table(
        "objects",
        sa.Column("kind", NAME, primary_key=True),
        sa.Column("namespace", NAME, primary_key=True),
        sa.Column("name", NAME, primary_key=True),
        sa.Column("resource_version", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    version = op.create_table(
        "object_version",
        sa.Column("only_row", sa.Integer, primary_key=True),
        sa.Column("resource_version", sa.BigInteger, nullable=False),
        sa.CheckConstraint("only_row = 1", name="object_version_one_row"),
    )
    op.bulk_insert(version, [{"only_row": 1, "resource_version": 0}])


def _attempt() -> list[sa.Column[Any]]:
    return [
        sa.Column("job_uid", NAME, primary_key=True),
        sa.Column("recurrence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.BigInteger, primary_key=True, autoincrement=False),
    ]


def _of_pipeline() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(ATTEMPT, [f"pipelines.{name}" for name in ATTEMPT], ondelete="CASCADE")


def _of_profile(table: str) -> sa.Column[Any]:
    return sa.Column("profile_id", sa.BigInteger, sa.ForeignKey(f"{table}.id", ondelete="CASCADE"), primary_key=True)
