"""The objects of a cluster that the live page shows, by namespace, as they were at one moment, and which can be read.

While a cluster is upgraded it has objects of another version. One that cannot be read is a problem of its own job, so
it is found when the objects are read, and not by each view that would fail at it. An object is checked once a version.
"""

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from wattloop.errors import InputError
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence, Usage
from wattloop_operator.cluster.api import Body
from wattloop_operator.domain.names import JOB_LABEL
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.history.history_sources import read_object, unreadable

# Of objects that cannot be read; the list of jobs has a line for each job.
MAX_PROBLEMS = 8
ATTEMPT = "TrainingRecurrence"


@dataclass(frozen=True)
class NamespaceObjects:
    """The objects of a namespace.

    Attributes:
        jobs: The bodies of the jobs, by name.
        recurrences: The bodies of the recurrences that can be read, by the uid of their job.
        version: Changes with any of them.
        unreadable: Why a job cannot be read, by name.
        lost: Why recurrences cannot be read, by the name of their job, "" if that is not known either.
    """

    jobs: Mapping[str, Body]
    recurrences: Mapping[str, Sequence[Body]]
    version: str
    unreadable: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def problems(self) -> Iterator[str]:
        """Why objects cannot be read."""
        return itertools.chain(self.unreadable.values(), *self.lost.values())


@dataclass(frozen=True)
class ClusterObjects:
    """The objects that a reader may list, as they were at one moment.

    Attributes:
        namespaces: The objects, by namespace.
        unread: Why the objects of a namespace are missing, by namespace.
        unreviewed: Why it is not known of each namespace whether the viewer may list it; empty if it is.
    """

    namespaces: Mapping[str, NamespaceObjects]
    unread: Mapping[str, str] = field(default_factory=dict)
    unreviewed: str = ""

    @cached_property
    def version(self) -> str:
        """Changes with any object."""
        versions_of_namespaces = sorted((name, each.version) for name, each in self.namespaces.items())
        return change_digest((versions_of_namespaces, sorted(self.unread.items()), self.unreviewed))

    def of(self, names: Iterable[str], unreviewed: str = "") -> "ClusterObjects":
        """Those of some of the namespaces; why it is not known of each whether it is one of them."""
        chosen = set(names)
        return ClusterObjects(
            {name: each for name, each in self.namespaces.items() if name in chosen},
            {name: each for name, each in self.unread.items() if name in chosen},
            unreviewed,
        )

    def missing(self) -> tuple[str, ...]:
        """What is missing, and why."""
        unread = (f"namespace {name} is not shown: {reason}" for name, reason in self.unread.items())
        problems = [problem for each in self.namespaces.values() for problem in each.problems()]
        return (*unread, *filter(None, (self.unreviewed,)), *first_of(problems))


def first_of(problems: Sequence[str]) -> tuple[str, ...]:
    """The first of the problems of objects, and the number of the others."""
    further = len(problems) - MAX_PROBLEMS
    return (*problems[:MAX_PROBLEMS], *([f"{further} more objects cannot be read"] if further > 0 else ()))


def namespace_objects(
    jobs: Sequence[Body], recurrences: Sequence[Body], problems: Mapping[str, str]
) -> NamespaceObjects:
    """The objects of a namespace, with their version.

    Args:
        jobs: The bodies of the jobs.
        recurrences: Those of the recurrences.
        problems: Why some of them cannot be read, by uid.
    """
    named = {str(each["metadata"]["name"]): each for each in jobs}
    of_jobs: defaultdict[str, list[Body]] = defaultdict(list)
    lost: defaultdict[str, list[str]] = defaultdict(list)
    for each in recurrences:
        problem = problems.get(str(each["metadata"]["uid"]))
        if problem is not None:
            lost[str((each["metadata"].get("labels") or {}).get(JOB_LABEL, ""))].append(problem)
        else:
            # A recurrence belongs to a job of its own namespace alone, whatever it says.
            of_jobs[str(each["spec"]["jobRef"]["uid"])].append(each)
    uids = {name: str(each["metadata"]["uid"]) for name, each in named.items()}
    unreadable = {name: problems[uid] for name, uid in uids.items() if uid in problems}
    return NamespaceObjects(named, of_jobs, change_digest(versions((*jobs, *recurrences))), unreadable, lost)


def versions(bodies: Iterable[Body]) -> list[tuple[str, str]]:
    """What changes with any of the objects."""
    return sorted((str(each["metadata"]["uid"]), str(each["metadata"]["resourceVersion"])) for each in bodies)


def change_digest(parts: object) -> str:
    """A short text that changes with the parts."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


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
        for check, bodies in ((job_of, jobs), (_check_recurrence, recurrences)):
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


def job_of(body: Body) -> RecurringTrainingJob:
    """A job as a model.

    Raises:
        InputError: It cannot be read.
    """
    return read_object(RecurringTrainingJob, body, _subject("RecurringTrainingJob", body))


def attempt_of(body: Body) -> TrainingAttempt:
    """The attempt as its object states it: whoever looks at the page may read objects, and no database.

    Raises:
        InputError: It cannot be read.
    """
    return TrainingAttempt.of(read_object(TrainingRecurrence, body, _subject(ATTEMPT, body)), None)


def _check_recurrence(body: Body) -> None:
    try:
        ended = _EndedAttempt.model_validate(body)
    except ValidationError as error:
        raise unreadable(_subject(ATTEMPT, body), error) from error
    if ended.status.result is None:
        attempt_of(body)
    else:
        ended_at(body)


def has_ended(recurrence: Body) -> bool:
    """Whether an attempt has a result."""
    return bool((recurrence.get("status") or {}).get("result"))


def ended_at(recurrence: Body) -> datetime:
    """When an attempt ended; if that is not known, when it was to begin.

    Raises:
        InputError: It is no time that has one in UTC.
    """
    text = recurrence["status"].get("completionTime") or recurrence["spec"]["scheduledTime"]
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        metadata = recurrence["metadata"]
        raise InputError(f"{metadata['namespace']}/{metadata['name']}", f"the time {text!r}", "RFC 3339") from error


def _subject(kind: str, body: Body) -> str:
    return f"{kind} {body['metadata']['namespace']}/{body['metadata']['name']}"
