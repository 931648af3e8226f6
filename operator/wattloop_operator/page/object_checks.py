"""Which objects of a cluster this version of Wattloop can read.

While a cluster is upgraded it has objects of another version. One that cannot be read is a problem of its own job, so
it is found when the objects are read, and not by each view that would fail at it. An object is checked once a version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from wattloop.errors import InputError
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence, Usage
from wattloop_operator.cluster.api import RECURRING_TRAINING_JOBS, TRAINING_RECURRENCES, Body
from wattloop_operator.history.history_sources import read_object, unreadable
from wattloop_operator.page.cluster_month import ended_at


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)


class _JobRef(_Part):
    name: str
    uid: str


class _Spec(_Part):
    job_ref: _JobRef
    scheduled_time: datetime


class _Status(_Part):
    result: str | None = None
    completion_time: datetime | None = None
    usage: Usage | None = None


class _EndedAttempt(_Part):
    """What views of many jobs read of a recurrence that has ended; a model of all of it takes ten times as long."""

    spec: _Spec
    status: _Status = _Status()


class ObjectChecks:
    """Remembers of the versions of objects whether they can be read."""

    def __init__(self) -> None:
        # By uid: the version, and its problem.
        self._known: dict[str, tuple[str, str]] = {}

    def problems(self, jobs: Iterable[Body], recurrences: Iterable[Body]) -> Mapping[str, str]:
        """Why objects cannot be read, by uid; those that can are not in it. Others than these are forgotten."""
        checked: dict[str, tuple[str, str]] = {}
        for check, bodies in ((_check_job, jobs), (_check_recurrence, recurrences)):
            for body in bodies:
                uid, version = str(body["metadata"]["uid"]), str(body["metadata"]["resourceVersion"])
                before = self._known.get(uid)
                is_known = before is not None and before[0] == version
                checked[uid] = before if before is not None and is_known else (version, _problem(check, body))
        self._known = checked
        return {uid: problem for uid, (_, problem) in checked.items() if problem}


def _problem(check: Callable[[Body], object], body: Body) -> str:
    try:
        check(body)
    except InputError as error:
        return str(error)
    return ""


def _check_job(body: Body) -> None:
    read_object(RecurringTrainingJob, body, _subject(RECURRING_TRAINING_JOBS.kind, body))


def _check_recurrence(body: Body) -> None:
    subject = _subject(TRAINING_RECURRENCES.kind, body)
    try:
        ended = _EndedAttempt.model_validate(body)
    except ValidationError as error:
        raise unreadable(subject, error) from error
    if ended.status.result is None:
        read_object(TrainingRecurrence, body, subject)
    else:
        ended_at(body)


def _subject(kind: str, body: Body) -> str:
    return f"{kind} {body['metadata']['namespace']}/{body['metadata']['name']}"
