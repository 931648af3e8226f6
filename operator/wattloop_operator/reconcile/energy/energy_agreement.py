"""The condition that says whether the processes' word on the energy and the agents' can both be right."""

from __future__ import annotations

from datetime import datetime

from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.meta import Condition
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.reconcile.conditions import condition
from wattloop_operator.reconcile.energy.agent_energy import AgentEnergy, disagreement

ENERGY_AGREES = "EnergyAgrees"


def energy_conditions(
    recurrence: TrainingRecurrence, word: AgentEnergy, heard: datetime, now: datetime
) -> tuple[Condition, ...]:
    """Whether the process's word and the agents' can both be right, where both speak of the same GPUs."""
    progress = recurrence.status.progress or Progress()
    if not progress.gpus or word.shared or not word.covers(heard):
        return ()
    text = disagreement(word, progress)
    reason = "SourcesDisagree" if text else "SourcesAgree"
    before = recurrence.status.conditions
    return (condition(before, ENERGY_AGREES, holds=not text, reason=reason, message=text, now=now),)
