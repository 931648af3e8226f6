"""The progress of attempts: one row each, with optimistic concurrency, and the outcome once it is decided.

The row decides between a report and an outcome. Each write names the version that it was made from, so of two writers
one fails, reads again and decides again. An outcome is written here before it is written to the TrainingRecurrence:
from then on no report is merged, and whoever leads writes this outcome and no other.
"""

import logging
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from pydantic import ValidationError
from sqlalchemy import ColumnElement, Row, and_, delete, or_, select, tuple_, update

from wattloop.errors import InputError
from wattloop_operator.api.model import ApiModel
from wattloop_operator.api.training_recurrence import TrainingRecurrence, TrainingRecurrenceStatus
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.training_attempt import ProgressRow, TrainingAttempt
from wattloop_operator.driver import StaleSnapshotError
from wattloop_operator.store.database import Database
from wattloop_operator.store.tables import ATTEMPT_PROGRESS

KEY = ("namespace", "name", "uid")
# A database bounds the parameters of a query, SQLite to 32,766.
ROWS_OF_QUERY = 500
# Of recurrences that were deleted while no operator ran. One that runs and was silent for so long repeats all of it.
RETENTION = timedelta(days=30)
# Of attempts that have ended: agents may report their energy that long, and their objects have what is shown of them.
ENDED_RETENTION = timedelta(days=2)

Model = TypeVar("Model", bound=ApiModel)
logger = logging.getLogger(__name__)


class AttemptProgress:
    """The rows in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def attempts(self, recurrences: Iterable[TrainingRecurrence]) -> list[TrainingAttempt]:
        """TrainingRecurrences with their rows."""
        listed = list(recurrences)
        columns, found = tuple_(*(ATTEMPT_PROGRESS.c[name] for name in KEY)), {}
        for begin in range(0, len(listed), ROWS_OF_QUERY):
            keys = [_key(each) for each in listed[begin : begin + ROWS_OF_QUERY]]
            with self._database.reading("read the progress of attempts") as on:
                rows = on.execute(select(ATTEMPT_PROGRESS).where(columns.in_(keys))).all()
            found.update({tuple(row)[: len(KEY)]: row for row in rows})
        return [TrainingAttempt.of(each, self._row(found.get(_key(each)))) for each in listed]

    def write(self, attempt: TrainingAttempt, body: str, *, ending: bool, now: datetime) -> None:
        """Write the progress of an attempt that has not changed since it was read, durably when this returns.

        Args:
            attempt: The attempt as it was read.
            body: Its new progress, as `progress_text` gives it.
            ending: Whether the leader is to look at the attempt.
            now: The time.

        Raises:
            StaleSnapshotError: The row has changed since, or its outcome is decided.
        """
        if attempt.outcome is not None:
            raise StaleSnapshotError(f"{attempt.metadata.full_name} has an outcome")
        self._write(attempt, {"body": body, "ending": ending, "reported_at": now, "updated_at": now})

    def decide(self, attempt: TrainingAttempt, outcome: TrainingRecurrenceStatus, now: datetime) -> None:
        """Write the outcome of an attempt that has not changed since it was read, durably when this returns.

        Raises:
            StaleSnapshotError: The row has changed since.
        """
        values = {"outcome": text_of(outcome), "ending": False, "updated_at": now}
        self._write(attempt, values if attempt.progress_version else values | {"body": "{}"})

    def ending(self) -> frozenset[tuple[str, str, int]]:
        """Namespace, name and version of the rows that the leader is to look at."""
        columns = (ATTEMPT_PROGRESS.c.namespace, ATTEMPT_PROGRESS.c.name, ATTEMPT_PROGRESS.c.version)
        with self._database.reading("look for attempts that end") as on:
            rows = on.execute(select(*columns).where(ATTEMPT_PROGRESS.c.ending)).all()
        return frozenset((row.namespace, row.name, row.version) for row in rows)

    def delete(self, recurrence: TrainingRecurrence) -> None:
        """Delete the row of a recurrence that is deleted."""
        with self._database.writing(f"delete the progress of {recurrence.metadata.full_name}") as on:
            on.execute(delete(ATTEMPT_PROGRESS).where(*_is(recurrence)))

    def delete_named(self, job_uid: str, names: Collection[str]) -> None:
        """Delete the rows of recurrences of a job, by their names."""
        with self._database.writing(f"delete the progress of attempts of job {job_uid}") as on:
            named = (ATTEMPT_PROGRESS.c.job_uid == job_uid, ATTEMPT_PROGRESS.c.name.in_(names))
            on.execute(delete(ATTEMPT_PROGRESS).where(*named))

    def delete_job(self, job_uid: str) -> None:
        """Delete the rows of a job."""
        with self._database.writing(f"delete the progress of job {job_uid}") as on:
            on.execute(delete(ATTEMPT_PROGRESS).where(ATTEMPT_PROGRESS.c.job_uid == job_uid))

    def delete_old(self, now: datetime) -> None:
        """Delete rows unchanged for `RETENTION`, and those of ended attempts for `ENDED_RETENTION`."""
        changed, has_ended = ATTEMPT_PROGRESS.c.updated_at, ATTEMPT_PROGRESS.c.outcome.is_not(None)
        is_old = or_(changed < now - RETENTION, and_(has_ended, changed < now - ENDED_RETENTION))
        with self._database.writing("delete old progress of attempts") as on:
            on.execute(delete(ATTEMPT_PROGRESS).where(is_old))

    def _write(self, attempt: TrainingAttempt, values: dict[str, Any]) -> None:
        name, version = attempt.metadata.full_name, attempt.progress_version
        with self._database.writing(f"write the progress of {name}") as on:
            if version:
                is_read = (*_is(attempt), ATTEMPT_PROGRESS.c.version == version)
                change = update(ATTEMPT_PROGRESS).where(*is_read).values(version=version + 1, **values)
            else:
                key = dict(zip(KEY, _key(attempt), strict=True))
                row = key | {"job_uid": attempt.spec.job_ref.uid, "version": 1} | values
                insert = self._database.insert(ATTEMPT_PROGRESS).values(row)
                change = insert.on_conflict_do_nothing(index_elements=KEY)
            if on.execute(change.returning(ATTEMPT_PROGRESS.c.version)).first() is None:
                raise StaleSnapshotError(f"{name}: its progress has changed since version {version}")

    def _row(self, row: Row[Any] | None) -> ProgressRow | None:
        if row is None:
            return None
        name = f"{row.namespace}/{row.name}"
        progress = self._read(Progress, row.body, f"the progress of {name}") or Progress()
        outcome = None
        if row.outcome is not None:
            outcome = self._read(TrainingRecurrenceStatus, row.outcome, f"the outcome of {name}")
        is_known = outcome is not None and outcome.result is not None
        reported_at = row.reported_at if isinstance(row.reported_at, datetime) else None
        return ProgressRow(row.version, progress, reported_at, outcome if is_known else None)

    def _read(self, model: type[Model], text: str, what: str) -> Model | None:
        """A model of its JSON; None, with a message, if this version of Wattloop cannot read it.

        The next report, which is cumulative, replaces such a progress; an outcome is decided again.
        """
        try:
            return model.model_validate_json(text, extra="ignore")
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            found = f"JSON that cannot be read ({where + ': ' if where else ''}{first['msg']})"
            problem = InputError(what, found, "what this version of Wattloop writes")
        try:
            self._database.leave_out(ATTEMPT_PROGRESS, problem)
        except InputError:
            logger.warning("%s; it is dropped", problem)
        return None


def text_of(model: ApiModel) -> str:
    """The JSON text of a model, without the fields that have their defaults."""
    return model.model_dump_json(by_alias=True, exclude_defaults=True)


def _key(recurrence: TrainingRecurrence) -> tuple[str, ...]:
    metadata = recurrence.metadata
    return metadata.namespace, metadata.name, metadata.uid


def _is(recurrence: TrainingRecurrence) -> tuple[ColumnElement[bool], ...]:
    return tuple(ATTEMPT_PROGRESS.c[name] == value for name, value in zip(KEY, _key(recurrence), strict=True))
