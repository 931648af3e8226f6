"""Builds the view that says why a job does not run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.meta import Condition
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.history.rows import outcome_text
from wattloop_operator.page.job_source import JobSource
from wattloop_operator.page.jobs_view import job_line
from wattloop_operator.page.views import ConditionsView, ConditionView, FailureView

MAX_FAILURES = 5


def conditions_view(source: JobSource, key: JobKey) -> ConditionsView | None:
    """The view of a job; None if there is none of this name.

    Raises:
        WattloopError: The job cannot be read.
    """
    version, job = source.version(), source.job(key)
    if job is None:
        return None
    overviews, snapshot = source.overviews((key,)), job.snapshot
    return ConditionsView(
        namespace=key.namespace,
        name=key.name,
        version=version,
        command=source.conditions_command(key),
        overview=job_line(overviews[0]) if overviews else None,
        missing=list(job.missing),
        conditions=[] if snapshot is None else list(_conditions(snapshot)),
        failures=[] if snapshot is None else list(_failures(snapshot))[:MAX_FAILURES],
    )


def _conditions(snapshot: Snapshot) -> Iterator[ConditionView]:
    yield from _of("job", snapshot.job.status.conditions)
    for each in sorted(snapshot.recurrences, key=lambda each: each.order):
        if each.status.result is None:
            yield from _of(each.metadata.name, each.status.conditions)


def _of(subject: str, conditions: Iterable[Condition]) -> Iterator[ConditionView]:
    for each in conditions:
        yield ConditionView(
            subject=subject,
            type=each.type,
            status=each.status.value,
            reason=each.reason,
            message=each.message,
            since=each.last_transition_time,
        )


def _failures(snapshot: Snapshot) -> Iterator[FailureView]:
    for each in sorted(snapshot.recurrences, key=lambda each: each.order, reverse=True):
        result = each.status.result
        if result not in (None, Result.REACHED):
            yield FailureView(name=each.metadata.name, outcome=outcome_text(result.value), message=each.status.message)
