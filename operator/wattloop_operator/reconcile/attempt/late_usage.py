"""Agent reports after the outcome: they update usage and cost, but not the observation.

An agent or the operator may have been offline. The agent's numbers are cumulative, and the agent
keeps them on its node until the operator acknowledges them. So the usage of an attempt is updated
whenever the agents' final report differs from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.actions import WriteRecurrenceStatus
from wattloop_operator.reconcile.attempt.attempt_conditions import ENERGY_AGREES, energy_conditions
from wattloop_operator.reconcile.energy.agent_energy import END_ROUNDING_SECONDS, agent_energy_of
from wattloop_operator.reconcile.energy.attempt_usage import (
    attempt_figures,
    cost_of,
    cost_status,
    usage_at_end,
    without_unmeasured_message,
)


def with_late_usage(snapshot: Snapshot, recurrence: TrainingAttempt, now: datetime) -> Iterator[WriteRecurrenceStatus]:
    """Update the usage of an ended attempt if the agents' final report differs from it."""
    status = recurrence.status
    agents = agent_energy_of(snapshot, recurrence)
    if status.completion_time is None or not agents.final:
        return
    progress = recurrence.progress
    until = status.completion_time + timedelta(seconds=END_ROUNDING_SECONDS)
    usage = usage_at_end(progress, agents, started=status.start_time, until=until)
    if usage is None or usage == status.usage:
        return
    energy = float(usage.gpu_energy_joules)
    cost = cost_status(cost_of(recurrence.spec, progress, usage), energy, snapshot.tariff)
    message = without_unmeasured_message(recurrence, status) if cost["cost_joules"] is not None else status.message
    conditions = tuple(
        each.model_copy(update={"message": message}) if each.message == status.message else each
        for each in status.conditions
        if each.type != ENERGY_AGREES
    )
    yield WriteRecurrenceStatus(
        recurrence,
        status.model_copy(
            update={
                "conditions": (*conditions, *energy_conditions(recurrence, agents, until, now)),
                "message": message,
                "usage": usage,
                **cost,
                **attempt_figures(usage, progress),
            }
        ),
    )
