"""The tables as SQLAlchemy Core metadata, which a new database gets; a test compares them with a migrated one.

The tables of records have a column for each field of the record.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from types import NoneType
from typing import Any, get_args, get_type_hints

from pydantic import AwareDatetime
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.dialects import sqlite

from wattloop_operator.domain.pipeline_result import PipelineResult
from wattloop_operator.domain.record_fields import StoredRecord
from wattloop_operator.domain.records import LateUsage, ObservationRecord, PodEnergy, PowerMeasurement, PowerProfileKey
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineProfileKey
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import ParameterValues

# Number of the newest migration.
SCHEMA_VERSION = 17
# Number of the first migration; an older schema is of a development version.
OLDEST_SCHEMA_VERSION = 12
PRODUCT = "wattloop"
# Values of the most parameters are shorter, with each character escaped.
MAX_PARAMETERS_CHARACTERS = 32 * 1024
# A curve of the most points with the longest numbers is shorter.
MAX_CURVE_CHARACTERS = 4096

METADATA = MetaData()


class _StoredText(sqlite.DATETIME):
    """A time as SQLite stores it: any text."""

    def result_processor(self, dialect: Dialect, coltype: object) -> None:
        """None, since the value is returned as found."""


class UtcDateTime(TypeDecorator[object]):
    """A time with microseconds in UTC on both databases, because SQLite stores no time zone.

    A value that is not a time is returned as found, and the record that gets it rejects it.
    """

    impl = DateTime(timezone=True).with_variant(_StoredText(), "sqlite")  # type: ignore[no-untyped-call]
    cache_ok = True

    def process_bind_param(self, value: object, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Convert to UTC; a time without a time zone is an error."""
        if value is None:
            return None
        assert isinstance(value, datetime)
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: object, dialect: Dialect) -> object:  # noqa: ARG002
        """Convert to UTC: SQLite's times have no time zone, PostgreSQL's have the session's."""
        if isinstance(value, datetime):
            return value.astimezone(UTC)
        try:
            return datetime.fromisoformat(value).replace(tzinfo=UTC) if isinstance(value, str) else value
        except ValueError:
            return value


class CurveText(TypeDecorator[object]):
    """A `MetricCurve` as compact JSON, [[epochs,metric],…].

    A value that is not such JSON is returned as found, and the record that gets it rejects it.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: object, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Format a curve of numbers exactly."""
        if not isinstance(value, MetricCurve):
            return None
        return json.dumps(tuple(zip(value.epochs, value.metrics, strict=True)), separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> object:  # noqa: ARG002
        """Parse a curve."""
        if value is None or len(value) > MAX_CURVE_CHARACTERS:
            return value
        try:
            epochs, metrics = zip(*json.loads(value, parse_int=float), strict=True)
            return MetricCurve(epochs, metrics)
        except (TypeError, ValueError, RecursionError):
            return value


class ParametersText(TypeDecorator[object]):
    """Values of parameters as compact JSON, [[name,value],…]; NULL if there are none.

    A value that is not such JSON is returned as found, and the record that gets it rejects it.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: object, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Format the values."""
        return json.dumps(value, separators=(",", ":")) if value else None

    def process_result_value(self, value: str | None, dialect: Dialect) -> object:  # noqa: ARG002
        """Parse the values."""
        if value is None:
            return ()
        if len(value) > MAX_PARAMETERS_CHARACTERS:
            return value
        try:
            return tuple((name, text) for name, text in json.loads(value))
        except (TypeError, ValueError, RecursionError):
            return value


class PipelineResultText(TypeDecorator[object]):
    """A `PipelineResult` as compact JSON; NULL if the attempt was no pipeline.

    A value that is not such JSON is returned as found, and the record that gets it rejects it.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: object, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Format the result."""
        return value.to_json() if isinstance(value, PipelineResult) else None

    def process_result_value(self, value: str | None, dialect: Dialect) -> object:  # noqa: ARG002
        """Parse the result."""
        if value is None:
            return None
        try:
            return PipelineResult.from_json(value)
        except (TypeError, ValueError, RecursionError):
            return value


# Ordered by code point on both databases, independent of the server's locale.
NAME = Text().with_variant(Text(collation="C"), "postgresql")
# SQLite generates ids only in a column of exactly this type.
SERIAL = BigInteger().with_variant(Integer(), "sqlite")

ATTEMPT = ("job_uid", "recurrence", "attempt")
COLUMN_TYPES: dict[Any, Any] = {
    str: Text,
    int: BigInteger,
    float: Double,
    bool: Boolean,
    AwareDatetime: UtcDateTime,
    MetricCurve: CurveText,
    ParameterValues: ParametersText,
    PipelineResult: PipelineResultText,
}


def columns_of(
    record: type[StoredRecord], *, key: Collection[str] = (), names: Collection[str] = ()
) -> Iterator[Column[Any]]:
    """The columns of a record, in the order of its fields.

    Args:
        record: The record; a field that may be None may be NULL.
        key: Its fields that are the primary key.
        names: Its fields that are ordered by code point.
    """
    hints = get_type_hints(record)
    for field in fields(record):
        hint = hints[field.name]
        optional = NoneType in get_args(hint)
        found = next(each for each in get_args(hint) if each is not NoneType) if optional else hint
        yield Column(
            field.name,
            NAME if field.name in names and found is str else COLUMN_TYPES[found],
            primary_key=field.name in key,
            # Without parameters there is no text.
            nullable=optional or found == ParameterValues,
            autoincrement=False,
        )


MARKER = Table(
    "wattloop_database",
    METADATA,
    Column("only_row", Integer, CheckConstraint("only_row = 1", name="wattloop_database_one_row"), primary_key=True),
    Column("product", Text, nullable=False),
    Column("schema_version", Integer, nullable=False),
    Column("compatible_from", Integer, nullable=False),
    Column("product_version", Text, nullable=False),
    Column("migrated_at", UtcDateTime, nullable=False),
)

OBSERVATIONS = Table(
    "observations",
    METADATA,
    *columns_of(ObservationRecord, key=ATTEMPT, names=("job_uid", "namespace", "job_name", "recurrence_name")),
    Index("observations_by_name", "namespace", "job_name"),
)

LATE_USAGES = Table("late_usages", METADATA, *columns_of(LateUsage, key=ATTEMPT, names=("job_uid",)))

PROFILES = Table(
    "power_profiles",
    METADATA,
    Column("id", SERIAL, primary_key=True),
    *columns_of(PowerProfileKey, names=("job_uid", "gpu_product", "image_digest")),
    UniqueConstraint("job_uid", "batch_size", "gpu_product", "gpu_count", "image_digest", name="power_profiles_key"),
)

MEASUREMENTS = Table(
    "power_measurements",
    METADATA,
    Column("profile_id", BigInteger, ForeignKey("power_profiles.id", ondelete="CASCADE"), primary_key=True),
    *columns_of(PowerMeasurement, key=("power_limit_watts",)),
)

# In the order in which they were made, with what each was made from.
DECISIONS = Table(
    "decisions",
    METADATA,
    Column("id", SERIAL, primary_key=True),
    Column("job_uid", NAME, nullable=False),
    Column("recurrence", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("namespace", NAME, nullable=False),
    Column("job_name", NAME, nullable=False),
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint(*ATTEMPT, name="decisions_key"),
)

POD_ENERGY_KEY = ("ledger", "pod_uid", "container", "gpu_uuid")
POD_ENERGIES = Table(
    "pod_energies",
    METADATA,
    *columns_of(PodEnergy, key=POD_ENERGY_KEY, names=(*POD_ENERGY_KEY, "job_uid")),
    Index("pod_energies_by_attempt", *ATTEMPT),
    Index("pod_energies_by_age", "reported_at"),
)


def _attempt() -> tuple[Column[str], Column[int], Column[int]]:
    """The columns of an attempt's key."""
    return (
        Column("job_uid", NAME, primary_key=True),
        Column("recurrence", BigInteger, primary_key=True, autoincrement=False),
        Column("attempt", BigInteger, primary_key=True, autoincrement=False),
    )


def _of_pipeline() -> ForeignKeyConstraint:
    """Rows that are deleted with the pipeline of their attempt."""
    return ForeignKeyConstraint(ATTEMPT, [f"pipelines.{name}" for name in ATTEMPT], ondelete="CASCADE")


# The revision rises with each change; a replica reads only the rows that another one wrote since.
PIPELINES = Table(
    "pipelines",
    METADATA,
    *_attempt(),
    Column("namespace", NAME, nullable=False),
    Column("recurrence_name", NAME, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    # NULL before the first registration, after the profile is deleted, and in rows of older versions.
    Column("profile_id", BigInteger),
    # Whether its profile waits for the planner; NULL before the first message.
    Column("waits_for_plan", Boolean),
    Index("pipelines_by_age", "updated_at"),
)

# Instructions and clocks, which many ranks share, by their digest.
PIPELINE_PARTS = Table(
    "pipeline_parts",
    METADATA,
    *_attempt(),
    Column("digest", NAME, primary_key=True),
    Column("body", LargeBinary, nullable=False),
    _of_pipeline(),
)

PIPELINE_RANKS = Table(
    "pipeline_ranks",
    METADATA,
    *_attempt(),
    Column("rank", BigInteger, primary_key=True, autoincrement=False),
    Column("revision", BigInteger, nullable=False),
    Column("part", NAME, nullable=False),
    Column("body", LargeBinary, nullable=False),
    _of_pipeline(),
)

PIPELINE_PROFILE_KEY = tuple(field.name for field in fields(PipelineProfileKey))
PIPELINE_PROFILES = Table(
    "pipeline_profiles",
    METADATA,
    Column("id", SERIAL, primary_key=True),
    *columns_of(PipelineProfileKey, names=PIPELINE_PROFILE_KEY),
    Column("frontier_digest", Text),
    Column("frontier", LargeBinary),
    # When an attempt last began to use it; NULL in rows of older versions.
    Column("used_at", UtcDateTime),
    UniqueConstraint(*PIPELINE_PROFILE_KEY, name="pipeline_profiles_key"),
)

PIPELINE_MEASUREMENTS = Table(
    "pipeline_measurements",
    METADATA,
    Column("profile_id", BigInteger, ForeignKey("pipeline_profiles.id", ondelete="CASCADE"), primary_key=True),
    Column("rank", BigInteger, primary_key=True, autoincrement=False),
    Column("process", NAME, primary_key=True),
    Column("recurrence", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

# One row for each attempt that has reported or has an outcome; its version rises with each change.
ATTEMPT_PROGRESS = Table(
    "attempt_progress",
    METADATA,
    Column("namespace", NAME, primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("uid", NAME, primary_key=True),
    Column("job_uid", NAME, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    # NULL until it is decided.
    Column("outcome", Text),
    # Whether the leader is to look at the attempt.
    Column("ending", Boolean, nullable=False),
    # NULL before the first report.
    Column("reported_at", UtcDateTime),
    Column("updated_at", UtcDateTime, nullable=False),
    Index("attempt_progress_by_job", "job_uid"),
    Index("attempt_progress_by_ending", "ending"),
    Index("attempt_progress_by_age", "updated_at"),
)

OBJECTS = Table(
    "objects",
    METADATA,
    Column("kind", NAME, primary_key=True),
    Column("namespace", NAME, primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("resource_version", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
)

# The last resource version of any object. It is never reused, so that an object that is deleted and
# created again does not have a version of its predecessor.
OBJECT_VERSION = Table(
    "object_version",
    METADATA,
    Column("only_row", Integer, CheckConstraint("only_row = 1", name="object_version_one_row"), primary_key=True),
    Column("resource_version", BigInteger, nullable=False),
)

# A second copy of each row of a table with figures, by which SQLite's `integrity_check` finds a value that was damaged
# on the disk. An index, since SQLite writes it with each row, whichever version of Wattloop does. A binary body has a
# checksum of its own.
for _table in (OBSERVATIONS, LATE_USAGES, PROFILES, MEASUREMENTS, DECISIONS, POD_ENERGIES, ATTEMPT_PROGRESS, OBJECTS):
    _others = [each for each in _table.columns if not each.primary_key and not isinstance(each.type, LargeBinary)]
    Index(f"{_table.name}_copy", *_table.primary_key.columns, *_others).ddl_if(dialect="sqlite")
