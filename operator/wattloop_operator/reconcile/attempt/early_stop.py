"""The policy's second thought about an attempt under way, once it has shown what an epoch costs.

A trial of a batch size whose epoch cost was not known yet may turn out not to be worth going on with. The decision
stays as it was written; the new bound is part of the progress, found when the report that shows it is taken in, so that
the answer to that same report can be to stop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.attempt.progress import with_stop
from wattloop_operator.reconcile.energy.usage import usage_of
from wattloop_operator.reconcile.learning.decision import decision_context, policy_of
from wattloop_operator.reconcile.learning.observations import epoch_usage
from wattloop_planner.bandit.policy import Decision, DecisionKind, PartialObservation, ReviewingPolicy


def reviewed(
    read_snapshot: Callable[[], Snapshot | None], recurrence: TrainingRecurrence, progress: Progress
) -> Progress:
    """The progress with the policy's second thought; unchanged before there is one, and after it.

    Args:
        read_snapshot: Reads the state of the job, where it is at hand; asked only when there is something to think
            about, since most reports give no reason to.
        recurrence: The attempt.
        progress: Its progress, the latest report taken in.
    """
    if progress.reviewed or progress.stop_requested or progress.reached or progress.finished:
        return progress
    shown = _shown(recurrence, progress)
    snapshot = None if shown is None else read_snapshot()
    if shown is None or snapshot is None:
        return progress
    policy = policy_of(snapshot.job.spec)
    if not isinstance(policy, ReviewingPolicy):
        return progress
    spec = recurrence.spec
    others = tuple(each for each in snapshot.recurrences if each.metadata.name != recurrence.metadata.name)
    asked = decision_context(replace(snapshot, recurrences=others), spec.index, spec.attempt)
    bound = None if spec.stop_cost_joules is None else float(spec.stop_cost_joules)
    kind = DecisionKind(spec.decision.kind.value.lower())
    bound = policy.review(asked, Decision(spec.batch_size, kind, spec.decision.reason, bound), shown)
    second_thought = {"reviewed": True, "stop_cost_joules": None if bound is None else to_decimal(bound)}
    return with_stop(recurrence, progress.model_copy(update=second_thought))


def _shown(recurrence: TrainingRecurrence, progress: Progress) -> PartialObservation | None:
    """What the policy is to think about; None before a whole epoch and its cost at the limit held are known."""
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
