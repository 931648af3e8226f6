"""Energy, time and cost of an attempt, from the reports of its processes and of the node agents.

An attempt whose energy and time were not measured has no cost. It is not one that cost nothing: nothing is learned from
it, and it counts in no mean and in no saving.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from wattloop.energy.cost import CostModel
from wattloop.energy.gpu_reading import any_shared
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.field_types import format_decimal, to_decimal
from wattloop_operator.api.training_recurrence import (
    Attribution,
    EnergySource,
    TrainingRecurrenceSpec,
    TrainingRecurrenceStatus,
    Usage,
)
from wattloop_operator.domain.gpu_readings import AgentReadings
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.quantities import JOULES_PER_KILOWATT_HOUR, KILOWATT_HOURS, MINUTES, metric_text
from wattloop_operator.domain.tariff import Tariff
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.energy.agent_energy import AgentEnergy, disagreement, process_uncertainty_joules
from wattloop_operator.reconcile.energy.counted_intervals import devices_at_once, duration_seconds

# More than any run can cost. Counters that give more are invalid, so the cost counts as unknown.
MAX_COST_JOULES = 1e14
# Millijoules, as the counters have them, and milliseconds.
DECIMALS = 3
# Of amounts of money and of emissions, in grams.
MONEY_DECIMALS = 6
# Without reports of the processes, the cost is that of the time which the agents cover. Agents miss a part of an
# attempt of a minute, because they ask the kubelet every two seconds; an attempt that they cover less is not
# compared with others.
MIN_COVERAGE_PERCENT = 95.0
# Product name of the device that stands for the processors of a machine without a GPU.
PROCESSORS_PRODUCT = "processors"
READ_PROCESSORS = "run it as root on a machine with RAPL, or simulate a GPU: --simulated-gpus 1 --simulated-load cpu"
# By whether others used the GPUs, too.
ATTRIBUTIONS = {None: Attribution.UNKNOWN, True: Attribution.SHARED, False: Attribution.EXCLUSIVE}
# The results that something would be learned from.
_LEARNED = frozenset({Result.REACHED, Result.STOPPED, Result.EXHAUSTED, Result.DIVERGED})


@dataclass(frozen=True)
class Money:
    """An amount in units of a currency."""

    amount: float
    currency: str


def usage_of(progress: Progress) -> Usage | None:
    """Energy and time of every GPU in the intervals in which processes of the attempt used it.

    If the processes report no GPUs, it is what the agents measured up to the latest epoch.

    None if no counter was reported.
    """
    if not progress.gpus:
        return None if progress.agents is None else _usage_so_far(progress.agents)
    known = [gpu.total_uncertainty_millijoules for gpu in progress.gpus]
    bounds = [bound for bound in known if bound is not None]
    return Usage(
        gpu_energy_joules=Decimal(sum(gpu.used_millijoules for gpu in progress.gpus)) / 1000,
        duration_seconds=round(duration_seconds(progress.gpus), DECIMALS),
        devices=devices_at_once(progress.gpus),
        gpu_product=progress.gpu_product,
        attribution=ATTRIBUTIONS[any_shared(gpu.shared for gpu in progress.gpus)],
        max_power_limit_watts=progress.max_power_limit_watts,
        uncertainty_joules=(Decimal(sum(bounds)) / 1000 if bounds else None),
    )


def _usage_so_far(agents: AgentReadings) -> Usage:
    return Usage(
        gpu_energy_joules=agents.latest.energy_joules,
        duration_seconds=agents.latest.time_seconds,
        devices=agents.devices,
        gpu_product=agents.gpu_product,
        attribution=Attribution.EXCLUSIVE,
        energy_source=EnergySource.AGENT,
        max_power_limit_watts=agents.max_power_limit_watts,
    )


def usage_at_end(progress: Progress, agents: AgentEnergy, *, started: datetime | None, until: datetime) -> Usage | None:
    """Usage of an attempt that has ended, from the more accurate source.

    If the sources contradict each other, the agents' reports are used: the agents know when pods had their GPUs. If the
    agents' reports do not cover the whole attempt, the processes' reports are used. If the processes reported nothing,
    the agents' reports are used, with the part of the time that they cover.
    """
    own = usage_of(progress) if progress.gpus else None
    if own is None:
        coverage = agents.coverage_percent(started, until)
        usage = _agents_usage(agents, progress, coverage) if agents.energies else None
        if usage is None or coverage is None or coverage < MIN_COVERAGE_PERCENT:
            return usage
        return usage.model_copy(update={"max_power_limit_watts": agents.max_power_limit_watts})
    if not agents.covers(until):
        return own.model_copy(update={"attribution": Attribution.SHARED}) if agents.shared else own
    agents_usage = _agents_usage(agents, progress, 100.0)
    uncertainty = process_uncertainty_joules(agents, progress)
    agents_count = agents.shared or disagreement(agents, progress)
    if agents_count or agents.uncertainty_millijoules / 1000 <= uncertainty:
        shared = own.attribution if own.attribution is Attribution.SHARED else agents_usage.attribution
        return agents_usage.model_copy(update={"attribution": shared})
    coverage = 100 * float(own.duration_seconds) / (agents.duration_seconds or 1.0)
    return own.model_copy(
        update={
            "coverage_percent": to_decimal(round(min(coverage, 100.0), 2)),
            "uncertainty_joules": to_decimal(round(uncertainty, 3)),
        }
    )


def _agents_usage(agents: AgentEnergy, progress: Progress, coverage: float | None) -> Usage:
    return Usage(
        gpu_energy_joules=Decimal(agents.energy_millijoules) / 1000,
        duration_seconds=to_decimal(round(agents.duration_seconds, DECIMALS)),
        devices=agents.devices,
        gpu_product=progress.gpu_product or agents.gpu_product,
        attribution=Attribution.SHARED if agents.shared else Attribution.EXCLUSIVE,
        coverage_percent=None if coverage is None else to_decimal(coverage),
        energy_source=EnergySource.AGENT,
        uncertainty_joules=Decimal(agents.uncertainty_millijoules) / 1000,
        max_power_limit_watts=progress.max_power_limit_watts if progress.gpus else None,
    )


def cost_of(spec: TrainingRecurrenceSpec, progress: Progress, usage: Usage | None) -> float | None:
    """Cost in joules so far; None if energy, time or the GPUs' maximum power is not known."""
    if usage is None:
        return None
    max_power_watts = max_power_of(progress, usage) or 0
    return measured_cost(
        spec.energy_weight_percent / 100, max_power_watts, usage.gpu_energy_joules, usage.duration_seconds
    )


def measured_cost(
    eta: float, max_power_watts: float, energy_joules: float | Decimal, time_seconds: float | Decimal
) -> float | None:
    """The cost of an attempt in joules; None if it is not known, which is not a cost of 0.

    Without a measured energy and time, or without GPUs, an attempt has no cost; nor with invalid counters.
    """
    if not has_cost(energy_joules, time_seconds, max_power_watts):
        return None
    return plausible_cost(CostModel(eta, float(max_power_watts)).cost_joules(float(energy_joules), float(time_seconds)))


def has_cost(energy_joules: float | Decimal, time_seconds: float | Decimal, max_power_watts: float | None) -> bool:
    """Whether the cost of an attempt is known: its energy and time were measured, and its GPUs' maximum power is."""
    return energy_joules > 0 and time_seconds > 0 and (max_power_watts or 0) > 0


def max_power_of(progress: Progress, usage: Usage | None) -> int | None:
    """Sum of the GPUs' maximum power limits, from the source that reported the GPUs; None if it is not known."""
    if progress.gpus:
        return progress.max_power_limit_watts
    return None if usage is None else usage.max_power_limit_watts


def plausible_cost(cost_joules: float) -> float | None:
    """The cost, or None if it is more than any run can cost."""
    return cost_joules if cost_joules < MAX_COST_JOULES else None


def money(energy_joules: float, tariff: Tariff) -> Money | None:
    """The price of this energy; None if the tariff has no price."""
    if tariff.per_kilowatt_hour is None or tariff.currency is None:
        return None
    amount = float(tariff.per_kilowatt_hour) * energy_joules / JOULES_PER_KILOWATT_HOUR
    return Money(round(amount, MONEY_DECIMALS), tariff.currency)


def money_status(energy_joules: float, tariff: Tariff) -> str | None:
    """The price of this energy in the form of a status; None if the tariff has no price."""
    paid = money(energy_joules, tariff)
    return None if paid is None else f"{format_decimal(to_decimal(paid.amount))} {paid.currency}"


def carbon_grams(energy_joules: float, tariff: Tariff) -> float | None:
    """Emissions of this energy in grams of CO2 equivalent; None if the tariff has no carbon intensity."""
    if tariff.grams_per_kilowatt_hour is None:
        return None
    return round(float(tariff.grams_per_kilowatt_hour) * energy_joules / JOULES_PER_KILOWATT_HOUR, MONEY_DECIMALS)


def usage_status(
    spec: TrainingRecurrenceSpec, progress: Progress, usage: Usage | None, tariff: Tariff
) -> dict[str, Any]:
    """Usage, cost, price and metric of an attempt that has ended, with units, as fields of its status."""
    cost = cost_of(spec, progress, usage)
    energy, time = (0.0, 0.0) if usage is None else (float(usage.gpu_energy_joules), float(usage.duration_seconds))
    return {
        "usage": usage,
        "cost_joules": None if cost is None else to_decimal(round(cost, DECIMALS)),
        "money": None if cost is None else money_status(energy, tariff),
        "energy": KILOWATT_HOURS.text(energy or None),
        "time": MINUTES.text(time or None),
        "metric": metric_text(None if progress.metric is None else float(progress.metric)),
    }


def unmeasured_message(recurrence: TrainingAttempt, result: Result, usage: Usage | None) -> str:
    """That nothing is learned from an attempt that ended without a cost, and why; empty if it has one."""
    cause = unmeasured_cause(recurrence, result, usage)
    return f"no energy was measured, so nothing is learned from it: {cause}" if cause else ""


def unmeasured_cause(recurrence: TrainingAttempt, result: Result, usage: Usage | None) -> str:
    """Why no energy of an ended attempt was measured, and what to do; empty if it was, or if nothing is lost."""
    max_power = max_power_of(recurrence.progress, usage)
    energy = 0.0 if usage is None else float(usage.gpu_energy_joules)
    seconds = 0.0 if usage is None else float(usage.duration_seconds)
    if result not in _LEARNED or has_cost(energy, seconds, max_power):
        return ""
    return _cause(recurrence, usage, energy, seconds)


def without_unmeasured_message(recurrence: TrainingAttempt, status: TrainingRecurrenceStatus) -> str:
    """The message of an ended attempt whose energy has become known."""
    if status.result is None:
        return status.message
    return status.message.removesuffix(f"; {unmeasured_message(recurrence, status.result, status.usage)}")


def _cause(recurrence: TrainingAttempt, usage: Usage | None, energy: float, seconds: float) -> str:
    if usage is None or not usage.devices:
        if not recurrence.status.devices:
            return "neither its processes nor a node agent saw a GPU; request one in its template"
        return (
            "neither its processes nor a node agent reported its GPUs; check that CUDA_VISIBLE_DEVICES hides none of "
            "them, and that the node agent runs on its node"
        )
    if usage.gpu_product == PROCESSORS_PRODUCT:
        return f"this machine has no GPU, and the energy of its processors cannot be read; {READ_PROCESSORS}"
    if seconds <= 0:
        return (
            "no time passed on its GPUs; on simulated GPUs, declare a load (--simulated-load cpu) or simulate the "
            "training's work"
        )
    if energy <= 0:
        gpus = "GPU" if usage.devices == 1 else f"{usage.devices} GPUs"
        return (
            f"the energy counters of its {gpus} did not advance in {seconds:g} s; check with nvidia-smi that they "
            "count energy, and that the training runs on them"
        )
    return "the maximum power limit of its GPUs is not known; check that the node agent runs on its node"
