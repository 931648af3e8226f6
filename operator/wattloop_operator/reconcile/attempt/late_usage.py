"""What the agents tell of an attempt after its outcome: usage and cost follow, outcome and learning stand.

An agent that was away, or whose operator was, tells late; what it tells is cumulative and kept on its node until it was
heard. So an attempt's usage is amended whenever the agents' last word on it is another one than its usage knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence, Usage
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.actions import WriteRecurrenceStatus
from wattloop_operator.reconcile.energy.agent_energy import ROUNDED_SECONDS, agent_energy_of
from wattloop_operator.reconcile.energy.energy_agreement import ENERGY_AGREES, energy_conditions
from wattloop_operator.reconcile.energy.usage import cost_of, cost_status, usage_at_end
from wattloop_operator.reconcile.learning.savings import default_cost

# Where nothing was known: no devices says so.
NOTHING_KNOWN = Usage.model_validate({"gpu_energy_joules": 0, "duration_seconds": 0})


def with_late_usage(
    snapshot: Snapshot, recurrence: TrainingRecurrence, now: datetime
) -> Iterator[WriteRecurrenceStatus]:
    """Bring the usage of an attempt that has an outcome up to the agents' last word, where that is news."""
    status = recurrence.status
    word = agent_energy_of(snapshot, recurrence)
    if status.completion_time is None or not word.ended:
        return
    progress = status.progress or Progress()
    heard = status.completion_time + timedelta(seconds=ROUNDED_SECONDS)
    usage = usage_at_end(progress, word, started=status.start_time, told_until=heard)
    if usage is None or usage == status.usage:
        return
    cost = cost_of(recurrence.spec, progress, usage)
    price = snapshot.job.spec.objective.price
    conditions = tuple(each for each in status.conditions if each.type != ENERGY_AGREES)
    yield WriteRecurrenceStatus(
        recurrence,
        status.model_copy(
            update={
                "conditions": (*conditions, *energy_conditions(recurrence, word, heard, now)),
                "usage": usage,
                "usage_at_outcome": status.usage_at_outcome or status.usage or NOTHING_KNOWN,
                "cost": cost_status(cost, default_cost(snapshot), float(usage.gpu_energy_joules), price),
            }
        ),
    )
