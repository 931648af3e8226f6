"""What an attempt took and cost, from the cumulative counters that its processes reported."""

from __future__ import annotations

from decimal import Decimal

from wattloop.cost import CostModel
from wattloop_operator.api.objective import Price
from wattloop_operator.api.progress import Progress
from wattloop_operator.api.recurring_training_job_status import Money
from wattloop_operator.api.training_recurrence import Attribution, Cost, TrainingRecurrenceSpec, Usage

JOULES_PER_KILOWATT_HOUR = 3_600_000
# More than any run can cost: counters that come to more are not to be believed, so its cost is not known.
LARGEST_COST_JOULES = 1e14


def usage_of(progress: Progress) -> Usage | None:
    """Energy and time between the first and the newest reading of every GPU; None where no counter was reported."""
    if not progress.gpus:
        return None
    millijoules = sum(gpu.energy_millijoules - gpu.start_energy_millijoules for gpu in progress.gpus)
    seconds = max(gpu.time_seconds - gpu.start_time_seconds for gpu in progress.gpus)
    return Usage(
        gpu_energy_joules=Decimal(millijoules) / 1000,
        duration_seconds=seconds,
        devices=len(progress.gpus),
        gpu_product=progress.gpu_product,
        attribution=Attribution.EXCLUSIVE,
    )


def cost_of(spec: TrainingRecurrenceSpec, progress: Progress, usage: Usage | None) -> float | None:
    """Cost in joules so far; None where energy or the GPUs' maximum power is not known."""
    if usage is None or not progress.max_power_limit_watts:
        return None
    model = CostModel(spec.energy_weight_percent / 100, float(progress.max_power_limit_watts))
    return believable(model.cost_joules(float(usage.gpu_energy_joules), float(usage.duration_seconds)))


def believable(cost_joules: float) -> float | None:
    """The cost, or None where it is more than any run can cost."""
    return cost_joules if cost_joules < LARGEST_COST_JOULES else None


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
            "joules": cost_joules,
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
