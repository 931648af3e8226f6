"""A request to forget (`spec.policy.forget`): which recurrences the policy no longer learns from.

The status records the request and the index of the next recurrence in one write, before anything
else is done. So a request is carried out once, at any kill, and applies to the objects and the
store alike. Indices rather than times: they are not affected by clocks, and a run that was in
flight at the request began with the state that is to be forgotten.
"""

from __future__ import annotations

from datetime import datetime

from wattloop_operator.api.recurring_training_job_status import Forgotten, ForgottenBatchSize
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.actions import Action, EmitEvent, WriteJobStatus
from wattloop_operator.reconcile.job.recurrences import next_index

MAX_BATCH_SIZES = 256


def forget_actions(snapshot: Snapshot, now: datetime) -> tuple[Action, ...]:
    """Carry out a new request to forget; none if there is none."""
    job = snapshot.job
    requested, before = job.spec.policy.forget, job.status.forgotten
    if requested is None or (before is not None and before.token == requested.token):
        return ()
    index = next_index(snapshot)
    by_size = {} if before is None else {each.batch_size: each for each in before.batch_sizes}
    before_all = 0 if before is None else before.before_recurrence
    if requested.batch_sizes is None:
        before_all, by_size = index, {}
    for size in requested.batch_sizes or ():
        by_size[size] = ForgottenBatchSize(batch_size=size, before_recurrence=index)
    latest = sorted(by_size.values(), key=lambda each: (-each.before_recurrence, each.batch_size))[:MAX_BATCH_SIZES]
    forgotten = Forgotten(
        token=requested.token,
        since=now,
        before_recurrence=before_all,
        batch_sizes=tuple(sorted(latest, key=lambda each: each.batch_size)),
    )
    sizes = "all batch sizes"
    if requested.batch_sizes is not None:
        sizes = f"batch sizes {', '.join(str(size) for size in sorted(requested.batch_sizes))}"
    text = (
        f"{job.metadata.namespace}/{job.metadata.name}: observations and crashes of {sizes} in the recurrences before "
        f"{index} are forgotten (spec.policy.forget.token {requested.token})"
    )
    status = job.status.model_copy(update={"forgotten": forgotten})
    # A token that a job is created with forgets nothing.
    events = (EmitEvent(False, "Forgotten", text),) if index else ()
    return *events, WriteJobStatus(status)
