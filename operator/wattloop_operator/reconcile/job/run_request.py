"""Why a run request waits: a condition as long as it does, and one Event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wattloop_operator.api.meta import Condition
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.actions import EmitEvent
from wattloop_operator.reconcile.job.start import Readiness, is_new_request

RUN_REQUEST = "RunRequestWaits"


def run_request_condition(snapshot: Snapshot, readiness: Readiness) -> Iterator[tuple[str, bool, str, str]]:
    """That the run request was not started yet, and why; nothing if none waits."""
    request = snapshot.job.spec.run_request
    if request is None or readiness.last_run_request == request or not is_new_request(snapshot, request):
        return
    if readiness.message:
        reason = "RunActive" if readiness.ready else readiness.reason
        yield RUN_REQUEST, True, reason, f"spec.runRequest {request!r} waits: {readiness.message}"


def run_request_event(before: Iterable[Condition], after: Iterable[Condition], name: str) -> EmitEvent | None:
    """The event for the moment at which a run request begins to wait; None otherwise.

    Args:
        before: The job's conditions as written before.
        after: Its current conditions.
        name: Namespace and name of the job.
    """
    known = {each.message for each in before if each.type == RUN_REQUEST}
    message = next((each.message for each in after if each.type == RUN_REQUEST), "")
    return EmitEvent(False, RUN_REQUEST, f"{name}: {message}") if message and message not in known else None
