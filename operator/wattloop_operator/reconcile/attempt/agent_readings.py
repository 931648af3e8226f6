"""What the node agents measured of an attempt, at the training's reports, if its processes report no GPUs.

Each report of a new epoch gets a mark: the energy and the time of all GPUs at that moment. The cost of an epoch follows
from two marks. An agent's latest reading is a few seconds older than the report; the energy used since is taken to be
the mean power since the last mark times that age.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.domain.gpu_readings import AgentReadings, EpochMark
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.records import PodEnergy
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.energy.agent_energy import AgentEnergy

# An agent reports every few seconds. Of older readings it is not known what was used since.
MAX_AGE_SECONDS = 60.0
# Power over less time is less certain than that since the GPU was assigned.
MIN_POWER_SECONDS = 5.0
# The error of a mark, over the time since then, is an error of the power, and times the age one of the next mark. So at
# most half of it remains; with more than the whole, the errors grow from mark to mark.
MIN_AGES = 2.0
DECIMALS = 3


def needs_agents(before: Progress, after: Progress) -> bool:
    """Whether the progress after a report may get a mark: it has a new epoch, and no process has reported a GPU."""
    return not after.gpus and after != before and _is_new(after)


def with_agent_readings(
    recurrence: TrainingAttempt, progress: Progress, energies: Sequence[PodEnergy], now: datetime
) -> Progress:
    """The progress with a mark of its epoch, if that is new and the agents have measured all GPUs lately."""
    if progress.gpus:
        return progress if progress.agents is None else progress.model_copy(update={"agents": None})
    if not _is_new(progress):
        return progress
    before, epoch = progress.agents, progress.epoch or to_decimal(0)
    agents = AgentEnergy(tuple(energies), max(recurrence.status.devices, 1))
    mark = None if agents.shared else _mark(agents, float(epoch), now, None if before is None else before.latest)
    if mark is None:
        return progress
    readings = AgentReadings(
        devices=agents.devices,
        gpu_product=agents.gpu_product,
        max_power_limit_watts=agents.max_power_limit_watts,
        first=mark if before is None else before.first,
        latest=mark,
    )
    return progress.model_copy(update={"agents": readings})


def _is_new(progress: Progress) -> bool:
    return progress.agents is None or (progress.epoch or 0) > progress.agents.latest.epoch


def _mark(agents: AgentEnergy, epoch: float, now: datetime, before: EpochMark | None) -> EpochMark | None:
    ages = [
        (0.0 if each.ended else max((now - (each.measured_at or each.reported_at)).total_seconds(), 0.0))
        for each in agents.energies
    ]
    if not agents.includes_all_gpus or max(ages) > MAX_AGE_SECONDS:
        return None
    joules = agents.energy_millijoules / 1000
    ages_seconds = sum(ages)
    seconds = sum(each.time_seconds - each.start_time_seconds for each in agents.energies)
    power = joules / seconds if seconds > 0 else 0.0
    if before is not None:
        later = seconds - float(before.time_seconds) * agents.devices
        if later >= max(MIN_POWER_SECONDS * agents.devices, MIN_AGES * ages_seconds):
            power = max(joules - float(before.energy_joules), 0.0) / later
    maximum = agents.max_power_limit_watts
    energy = joules + (power if maximum is None else min(power, maximum / agents.devices)) * sum(ages)
    until_now = (
        each if each.ended else replace(each, time_seconds=each.time_seconds + age, measured_at=now)
        for each, age in zip(agents.energies, ages, strict=True)
    )
    time = replace(agents, energies=tuple(until_now)).duration_seconds
    return EpochMark.model_validate(
        {
            "epoch": epoch,
            "energy_joules": round(max(energy, 0.0 if before is None else float(before.energy_joules)), DECIMALS),
            "time_seconds": round(max(time, 0.0 if before is None else float(before.time_seconds)), DECIMALS),
        }
    )
