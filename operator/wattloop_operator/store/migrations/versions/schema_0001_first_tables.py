"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables in an empty database."""
    _marker()
    _observations()
    _profiles()
    _late_usages()
    _pod_energies()
    _objects()


def _marker() -> None:
    op.create_table(
        "wattloop_database",
        sa.Column("only_row", sa.Integer, primary_key=True),
        sa.Column("product", sa.Text, nullable=False),
        sa.Column("schema_version", sa.Integer, nullable=False),
        sa.Column("compatible_from", sa.Integer, nullable=False),
        sa.Column("product_version", sa.Text, nullable=False),
        sa.Column("migrated_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("only_row = 1", name="wattloop_database_one_row"),
    )


def _observations() -> None:
    op.create_table(
        "observations",
        sa.Column("job_uid", NAME, primary_key=True),
        sa.Column("recurrence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.BigInteger, primary_key=True, autoincrement=False),
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
        sa.Column("scheduled_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("observations_by_name", "observations", ["namespace", "job_name"])


def _profiles() -> None:
    op.create_table(
        "power_profiles",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("job_uid", NAME, nullable=False),
        sa.Column("batch_size", sa.BigInteger, nullable=False),
        sa.Column("gpu_product", NAME, nullable=False),
        sa.Column("gpu_count", sa.BigInteger, nullable=False),
        sa.Column("image_digest", NAME, nullable=False),
        sa.UniqueConstraint(
            "job_uid", "batch_size", "gpu_product", "gpu_count", "image_digest", name="power_profiles_key"
        ),
    )
    op.create_table(
        "power_measurements",
        sa.Column(
            "profile_id", sa.BigInteger, sa.ForeignKey("power_profiles.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("power_limit_watts", sa.Double, primary_key=True),
        sa.Column("energy_joules", sa.Double, nullable=False),
        sa.Column("time_seconds", sa.Double, nullable=False),
        sa.Column("epochs", sa.Double, nullable=False),
    )


def _late_usages() -> None:
    op.create_table(
        "late_usages",
        sa.Column("job_uid", NAME, primary_key=True),
        sa.Column("recurrence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("energy_joules", sa.Double, nullable=False),
        sa.Column("time_seconds", sa.Double, nullable=False),
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
        sa.Column("reported_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("pod_energies_by_attempt", "pod_energies", ["job_uid", "recurrence", "attempt"])
    op.create_index("pod_energies_by_age", "pod_energies", ["reported_at"])


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
