"""The tables as SQLAlchemy Core metadata, which a new database gets; a test compares them with a migrated one.

The tables of records have a column for each field of the record.
"""

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from types import NoneType
from typing import Any, get_args, get_type_hints

import sqlalchemy as sa
from pydantic import AwareDatetime
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

METADATA = sa.MetaData()


class _StoredText(sqlite.DATETIME):
    """A time as SQLite stores it: any text."""

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> None:
        """None, since the value is returned as found."""


class UtcDateTime(sa.TypeDecorator[object]):
    """A time with microseconds in UTC on both databases, because SQLite stores no time zone.

    A value that is not a time is returned as found, and the record that gets it rejects it.
    """

    impl = sa.DateTime(timezone=True).with_variant(_StoredText(), "sqlite")  # type: ignore[no-untyped-call]
    cache_ok = True

    def process_bind_param(self, value: object, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002
        """Convert to UTC; a time without a time zone is an error."""
        if value is None:
            return None
        assert isinstance(value, datetime)
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: object, dialect: sa.Dialect) -> object:  # noqa: ARG002
        """Convert to UTC: SQLite's times have no time zone, PostgreSQL's have the session's."""
        if isinstance(value, datetime):
            return value.astimezone(UTC)
        try:
            return datetime.fromisoformat(value).replace(tzinfo=UTC) if isinstance(value, str) else value
        except ValueError:
            return value


class JsonText(sa.TypeDecorator[object]):
    """A value as compact JSON.

    A text that is not such JSON is returned as found, and the record that gets it rejects it.

    Args:
        dump: The text of a value; None is NULL.
        load: The value of a text.
        absent: The value of NULL.
    """

    impl = sa.Text
    cache_ok = True

    def __init__(self, dump: Callable[[Any], str | None], load: Callable[[str], object], absent: object = None) -> None:
        super().__init__()
        self.dump, self.load, self.absent = dump, load, absent

    def process_bind_param(self, value: object, dialect: sa.Dialect) -> str | None:  # noqa: ARG002
        """Format a value."""
        return None if value is None else self.dump(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> object:  # noqa: ARG002
        """Parse a text."""
        try:
            return self.absent if value is None else self.load(value)
        except (TypeError, ValueError, RecursionError):
            return value


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _curve_text(curve: MetricCurve) -> str:
    """The numbers exactly: [[epochs,metric],…]."""
    return _compact(tuple(zip(curve.epochs, curve.metrics, strict=True)))


def _curve(text: str) -> object:
    if len(text) > MAX_CURVE_CHARACTERS:
        return text
    epochs, metrics = zip(*json.loads(text, parse_int=float), strict=True)
    return MetricCurve(epochs, metrics)


def _parameters_text(values: ParameterValues) -> str | None:
    """[[name,value],…]; NULL if there are none."""
    return _compact(values) if values else None


def _parameters(text: str) -> object:
    if len(text) > MAX_PARAMETERS_CHARACTERS:
        return text
    return tuple((name, value) for name, value in json.loads(text))


# Ordered by code point on both databases, independent of the server's locale.
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
# SQLite generates ids only in a column of exactly this type.
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

ATTEMPT = ("job_uid", "recurrence", "attempt")
COLUMN_TYPES: dict[Any, Any] = {
    str: sa.Text,
    int: sa.BigInteger,
    float: sa.Double,
    bool: sa.Boolean,
    AwareDatetime: UtcDateTime,
    MetricCurve: JsonText(_curve_text, _curve),
    ParameterValues: JsonText(_parameters_text, _parameters, absent=()),
    PipelineResult: JsonText(PipelineResult.to_json, PipelineResult.from_json),
}


def columns_of(
    record: type[StoredRecord], *, key: Collection[str] = (), names: Collection[str] = ()
) -> Iterator[sa.Column[Any]]:
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
        yield sa.Column(
            field.name,
            NAME if field.name in names and found is str else COLUMN_TYPES[found],
            primary_key=field.name in key,
            # Without parameters there is no text.
            nullable=optional or found == ParameterValues,
            autoincrement=False,
        )


MARKER = sa.Table(
    "wattloop_database",
    METADATA,
    sa.Column(
        "only_row", sa.Integer, sa.CheckConstraint("only_row = 1", name="wattloop_database_one_row"), primary_key=True
    ),
    sa.Column("product", sa.Text, nullable=False),
    sa.Column("schema_version", sa.Integer, nullable=False),
    sa.Column("compatible_from", sa.Integer, nullable=False),
    sa.Column("product_version", sa.Text, nullable=False),
    sa.Column("migrated_at", UtcDateTime, nullable=False),
)

OBSERVATIONS = sa.Table(
    "observations",
    METADATA,
    *columns_of(ObservationRecord, key=ATTEMPT, names=("job_uid", "namespace", "job_name", "recurrence_name")),
    sa.Index("observations_by_name", "namespace", "job_name"),
)

LATE_USAGES = sa.Table("late_usages", METADATA, *columns_of(LateUsage, key=ATTEMPT, names=("job_uid",)))

PROFILES = sa.Table(
    "power_profiles",
    METADATA,
    sa.Column("id", SERIAL, primary_key=True),
    *columns_of(PowerProfileKey, names=("job_uid", "gpu_product", "image_digest")),
    sa.UniqueConstraint("job_uid", "batch_size", "gpu_product", "gpu_count", "image_digest", name="power_profiles_key"),
)

MEASUREMENTS = sa.Table(
    "power_measurements",
    METADATA,
    sa.Column("profile_id", sa.BigInteger, sa.ForeignKey("power_profiles.id", ondelete="CASCADE"), primary_key=True),
    *columns_of(PowerMeasurement, key=("power_limit_watts",)),
)

# In the order in which they were made, with what each was made from.
DECISIONS = sa.Table(
    "decisions",
    METADATA,
    sa.Column("id", SERIAL, primary_key=True),
    sa.Column("job_uid", NAME, nullable=False),
    sa.Column("recurrence", sa.BigInteger, nullable=False),
    sa.Column("attempt", sa.BigInteger, nullable=False),
    sa.Column("namespace", NAME, nullable=False),
    sa.Column("job_name", NAME, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint(*ATTEMPT, name="decisions_key"),
)

POD_ENERGY_KEY = ("ledger", "pod_uid", "container", "gpu_uuid")
POD_ENERGIES = sa.Table(
    "pod_energies",
    METADATA,
    *columns_of(PodEnergy, key=POD_ENERGY_KEY, names=(*POD_ENERGY_KEY, "job_uid")),
    sa.Index("pod_energies_by_attempt", *ATTEMPT),
    sa.Index("pod_energies_by_age", "reported_at"),
)


def _attempt() -> tuple[sa.Column[str], sa.Column[int], sa.Column[int]]:
    return (
        sa.Column("job_uid", NAME, primary_key=True),
        sa.Column("recurrence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.BigInteger, primary_key=True, autoincrement=False),
    )


def _of_pipeline() -> sa.ForeignKeyConstraint:
    """Rows that are deleted with the pipeline of their attempt."""
    return sa.ForeignKeyConstraint(ATTEMPT, [f"pipelines.{name}" for name in ATTEMPT], ondelete="CASCADE")


# The revision rises with each change; a replica reads only the rows that another one wrote since.
PIPELINES = sa.Table(
    "pipelines",
    METADATA,
    *_attempt(),
    sa.Column("namespace", NAME, nullable=False),
    sa.Column("recurrence_name", NAME, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    # NULL before the first registration, after the profile is deleted, and in rows of older versions.
    sa.Column("profile_id", sa.BigInteger),
    # Whether its profile waits for the planner; NULL before the first message.
    sa.Column("waits_for_plan", sa.Boolean),
    sa.Index("pipelines_by_age", "updated_at"),
)

# Instructions and clocks, which many ranks share, by their digest.
PIPELINE_PARTS = sa.Table(
    "pipeline_parts",
    METADATA,
    *_attempt(),
    sa.Column("digest", NAME, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
    _of_pipeline(),
)

PIPELINE_RANKS = sa.Table(
    "pipeline_ranks",
    METADATA,
    *_attempt(),
    sa.Column("rank", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("part", NAME, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    _of_pipeline(),
)

PIPELINE_PROFILE_KEY = tuple(field.name for field in fields(PipelineProfileKey))
PIPELINE_PROFILES = sa.Table(
    "pipeline_profiles",
    METADATA,
    sa.Column("id", SERIAL, primary_key=True),
    *columns_of(PipelineProfileKey, names=PIPELINE_PROFILE_KEY),
    sa.Column("frontier_digest", sa.Text),
    sa.Column("frontier", sa.LargeBinary),
    # When an attempt last began to use it; NULL in rows of older versions.
    sa.Column("used_at", UtcDateTime),
    sa.UniqueConstraint(*PIPELINE_PROFILE_KEY, name="pipeline_profiles_key"),
)

PIPELINE_MEASUREMENTS = sa.Table(
    "pipeline_measurements",
    METADATA,
    sa.Column("profile_id", sa.BigInteger, sa.ForeignKey("pipeline_profiles.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("rank", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("process", NAME, primary_key=True),
    sa.Column("recurrence", sa.BigInteger, nullable=False),
    sa.Column("attempt", sa.BigInteger, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

# One row for each attempt that has reported or has an outcome; its version rises with each change.
ATTEMPT_PROGRESS = sa.Table(
    "attempt_progress",
    METADATA,
    sa.Column("namespace", NAME, primary_key=True),
    sa.Column("name", NAME, primary_key=True),
    sa.Column("uid", NAME, primary_key=True),
    sa.Column("job_uid", NAME, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    # NULL until it is decided.
    sa.Column("outcome", sa.Text),
    # Whether the leader is to look at the attempt.
    sa.Column("ending", sa.Boolean, nullable=False),
    # NULL before the first report.
    sa.Column("reported_at", UtcDateTime),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    sa.Index("attempt_progress_by_job", "job_uid"),
    sa.Index("attempt_progress_by_ending", "ending"),
    sa.Index("attempt_progress_by_age", "updated_at"),
)

OBJECTS = sa.Table(
    "objects",
    METADATA,
    sa.Column("kind", NAME, primary_key=True),
    sa.Column("namespace", NAME, primary_key=True),
    sa.Column("name", NAME, primary_key=True),
    sa.Column("resource_version", sa.BigInteger, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)

# The last resource version of any object. It is never reused, so that an object that is deleted and
# created again does not have a version of its predecessor.
OBJECT_VERSION = sa.Table(
    "object_version",
    METADATA,
    sa.Column(
        "only_row", sa.Integer, sa.CheckConstraint("only_row = 1", name="object_version_one_row"), primary_key=True
    ),
    sa.Column("resource_version", sa.BigInteger, nullable=False),
)

# A second copy of each row of a table with figures, by which SQLite's `integrity_check` finds a value that was damaged
# on the disk. An index, since SQLite writes it with each row, whichever version of Wattloop does. A binary body has a
# checksum of its own.
for _table in (OBSERVATIONS, LATE_USAGES, PROFILES, MEASUREMENTS, DECISIONS, POD_ENERGIES, ATTEMPT_PROGRESS, OBJECTS):
    _others = [each for each in _table.columns if not each.primary_key and not isinstance(each.type, sa.LargeBinary)]
    sa.Index(f"{_table.name}_copy", *_table.primary_key.columns, *_others).ddl_if(dialect="sqlite")
