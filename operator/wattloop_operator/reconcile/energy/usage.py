"""What an attempt took and cost, from what its processes reported and the agents of their nodes."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from wattloop.cost import CostModel
from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.objective import Carbon, Price
from wattloop_operator.api.recurring_training_job_status import Money
from wattloop_operator.api.training_recurrence import (
    Attribution,
    Cost,
    EnergySource,
    TrainingRecurrenceSpec,
    Usage,
)
from wattloop_operator.reconcile.energy.agent_energy import AgentEnergy, processes_uncertainty_joules

JOULES_PER_KILOWATT_HOUR = 3_600_000
# More than any run can cost: counters that come to more are not to be believed, so its cost is not known.
MAX_COST_JOULES = 1e14
# Counters count millijoules, and people read the rest: milliseconds.
SHOWN_DIGITS = 3


def usage_of(progress: Progress) -> Usage | None:
    """Energy and time between the first and the newest reading of every GPU; None where no counter was reported."""
    if not progress.gpus:
        return None
    millijoules = sum(gpu.energy_millijoules - gpu.start_energy_millijoules for gpu in progress.gpus)
    seconds = max(gpu.time_seconds - gpu.start_time_seconds for gpu in progress.gpus)
    return Usage(
        gpu_energy_joules=Decimal(millijoules) / 1000,
        duration_seconds=round(seconds, SHOWN_DIGITS),
        devices=len(progress.gpus),
        gpu_product=progress.gpu_product,
        attribution=Attribution.EXCLUSIVE,
    )


def usage_at_end(
    progress: Progress, word: AgentEnergy, *, started: datetime | None, told_until: datetime
) -> Usage | None:
    """What an attempt that has ended took, by whom knows it better: the agents of its nodes or its processes.

    Where the agents do not tell of all of it, its processes' word is taken; where these say nothing, what the agents
    tell, with the part of the time that it covers.

    Args:
        progress: What its processes reported.
        word: What the agents say.
        started: When it started.
        told_until: Up to when the agents must have told of it.
    """
    own = usage_of(progress)
    if own is None:
        return _by_agents(word, progress, word.coverage_percent(started, told_until)) if word.energies else None
    if not word.covers(told_until):
        return own.model_copy(update={"attribution": Attribution.SHARED}) if word.shared else own
    by_agents = _by_agents(word, progress, 100.0)
    off = processes_uncertainty_joules(word, progress)
    if word.shared or word.uncertainty_millijoules / 1000 <= off:
        return by_agents.model_copy(update={"reported_energy_joules": own.gpu_energy_joules})
    coverage = 100 * float(own.duration_seconds) / (word.duration_seconds or 1.0)
    return own.model_copy(
        update={
            "coverage_percent": to_decimal(round(min(coverage, 100.0), 2)),
            "uncertainty_joules": to_decimal(round(off, 3)),
            "reported_energy_joules": own.gpu_energy_joules,
            "attributed_energy_joules": by_agents.attributed_energy_joules,
        }
    )


def _by_agents(word: AgentEnergy, progress: Progress, coverage: float | None) -> Usage:
    return Usage(
        gpu_energy_joules=Decimal(word.energy_millijoules) / 1000,
        duration_seconds=to_decimal(round(word.duration_seconds, SHOWN_DIGITS)),
        devices=len(word.gpus),
        gpu_product=progress.gpu_product or word.gpu_product,
        attribution=Attribution.SHARED if word.shared else Attribution.EXCLUSIVE,
        coverage_percent=None if coverage is None else to_decimal(coverage),
        energy_source=EnergySource.AGENT,
        uncertainty_joules=Decimal(word.uncertainty_millijoules) / 1000,
        attributed_energy_joules=Decimal(word.energy_millijoules) / 1000,
    )


def cost_of(spec: TrainingRecurrenceSpec, progress: Progress, usage: Usage | None) -> float | None:
    """Cost in joules so far; None where energy or the GPUs' maximum power is not known."""
    if usage is None or not progress.max_power_limit_watts:
        return None
    model = CostModel(spec.energy_weight_percent / 100, float(progress.max_power_limit_watts))
    return believable(model.cost_joules(float(usage.gpu_energy_joules), float(usage.duration_seconds)))


def believable(cost_joules: float) -> float | None:
    """The cost, or None where it is more than any run can cost."""
    return cost_joules if cost_joules < MAX_COST_JOULES else None


def relative_percent(cost_joules: float, default_cost_joules: float | None) -> float | None:
    """The cost in percent of the default configuration's; None where that is not known, or next to nothing."""
    return believable(round(100 * cost_joules / default_cost_joules, 2)) if default_cost_joules else None


def cost_status(
    cost_joules: float | None, default_cost_joules: float | None, energy_joules: float, price: Price | None
) -> Cost | None:
    """The cost as the status shows it, beside that of the default configuration and in money."""
    if cost_joules is None:
        return None
    return Cost.model_validate(
        {
            "joules": round(cost_joules, SHOWN_DIGITS),
            "relative_to_default_percent": relative_percent(cost_joules, default_cost_joules),
            "money": money(energy_joules, price),
        }
    )


def money(energy_joules: float, price: Price | None) -> Money | None:
    """What this energy costs, where the job gives a price."""
    if price is None:
        return None
    amount = float(price.per_kilowatt_hour) * energy_joules / JOULES_PER_KILOWATT_HOUR
    return Money.model_validate({"amount": round(amount, 6), "currency": price.currency})


def carbon_grams(energy_joules: float, carbon: Carbon | None) -> float | None:
    """Emissions of this energy in grams of CO2 equivalent, where the job gives a carbon intensity."""
    if carbon is None:
        return None
    return round(float(carbon.grams_per_kilowatt_hour) * energy_joules / JOULES_PER_KILOWATT_HOUR, 6)
