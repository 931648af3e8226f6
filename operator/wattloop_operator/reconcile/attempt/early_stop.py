"""Early stop: when an attempt is asked to stop because it exceeds its cost limit.

The decision of an attempt sets a cost limit. The policy may review that limit once, when the
attempt has shown what an epoch costs: a trial of a batch size with unknown epoch cost may not be
worth continuing. The decision stays as written; the new limit is part of the progress. Both are
computed while a report is processed, so that the answer to that same report can be to stop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.training_recurrence import DecisionKind, TrainingRecurrence
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.energy.usage import cost_of, usage_of
from wattloop_operator.reconcile.learning.decision import decision_context, policy_of
from wattloop_operator.reconcile.learning.observations import epoch_usage
from wattloop_planner.bandit.policy import Decision, PartialObservation, ReviewingPolicy
from wattloop_planner.bandit.policy import DecisionKind as PolicyDecisionKind

ROUNDING = 1e-9
# Decisions of a policy, which reviews them. The others were made without it.
REVIEWED_KINDS = frozenset(DecisionKind) - {DecisionKind.ADVISE, DecisionKind.COMPARISON}


def with_stop_request(recurrence: TrainingRecurrence, progress: Progress) -> Progress:
    """Request a stop once the attempt has cost its limit; never after the target.

    A request is never withdrawn.
    """
    limit = progress.stop_cost_joules if progress.reviewed else recurrence.spec.stop_cost_joules
    if progress.stop_requested or progress.reached or progress.finished or limit is None:
        return progress
    cost = cost_of(recurrence.spec, progress, usage_of(progress))
    # An attempt that has already cost its limit stops at once, although the limit was rounded when
    # it was written.
    if cost is None or cost < float(limit) * (1 - ROUNDING):
        return progress
    reason = (
        f"it has cost {cost:.0f} J after {progress.epoch or Decimal(0)} epochs without reaching the target; "
        f"the policy allows {float(limit):.0f} J"
    )
    return progress.model_copy(update={"stop_requested": True, "stop_reason": reason})


def review_cost_limit(
    read_snapshot: Callable[[], Snapshot | None], recurrence: TrainingRecurrence, progress: Progress
) -> Progress:
    """Have the policy review the cost limit of a running attempt, once.

    Args:
        read_snapshot: Reads the state of the job; None if it is not available. Called only if a
            review is due, because most reports need none.
        recurrence: The attempt.
        progress: Its progress, including the latest report.

    Returns:
        The progress with the new limit, and with a stop request if it is exceeded. Unchanged if no
        review is due.
    """
    if progress.reviewed or progress.stop_requested or progress.reached or progress.finished:
        return progress
    if recurrence.spec.decision.kind not in REVIEWED_KINDS:
        return progress
    measured = _partial_observation(recurrence, progress)
    snapshot = None if measured is None else read_snapshot()
    if measured is None or snapshot is None:
        return progress
    policy = policy_of(snapshot.job.spec)
    if not isinstance(policy, ReviewingPolicy):
        return progress
    spec = recurrence.spec
    others = tuple(each for each in snapshot.recurrences if each.metadata.name != recurrence.metadata.name)
    context = decision_context(replace(snapshot, recurrences=others), spec.index, spec.attempt)
    limit = None if spec.stop_cost_joules is None else float(spec.stop_cost_joules)
    kind = PolicyDecisionKind(spec.decision.kind.value.lower())
    limit = policy.review(context, Decision(spec.batch_size, kind, spec.decision.reason, limit), measured)
    review = {"reviewed": True, "stop_cost_joules": None if limit is None else to_decimal(limit)}
    return with_stop_request(recurrence, progress.model_copy(update=review))


def _partial_observation(recurrence: TrainingRecurrence, progress: Progress) -> PartialObservation | None:
    """The input of the policy's review.

    None before one full epoch and its cost at the current power limit are known.
    """
    usage = usage_of(progress)
    if usage is None or not progress.max_power_limit_watts or progress.epoch is None or progress.epoch < 1:
        return None
    energy, time = epoch_usage(recurrence.spec, progress, usage, progress.epoch)
    if energy is None or time is None:
        return None
    return PartialObservation(
        batch_size=recurrence.spec.batch_size,
        epochs=float(progress.epoch),
        energy_joules=float(usage.gpu_energy_joules),
        time_seconds=float(usage.duration_seconds),
        max_power_watts=float(progress.max_power_limit_watts),
        epoch_energy_joules=energy,
        epoch_time_seconds=time,
    )
