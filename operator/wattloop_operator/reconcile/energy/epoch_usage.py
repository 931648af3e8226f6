"""Energy and time of one epoch of an attempt, and what it used before its epochs.

Loading data, compiling and filling caches take as long as many short epochs, and fall into the first one.
Without them, the cost of a trial's first epoch would be compared with the mean of a whole run. So the
epochs after the first one give the cost of an epoch, and the rest of the attempt is its start-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from wattloop_operator.api.attempt import EpochMark, Progress
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.training_recurrence import TrainingRecurrenceSpec, Usage
from wattloop_operator.reconcile.energy.rank_measurements import complete_points
from wattloop_operator.reconcile.energy.usage import DECIMALS, usage_of
from wattloop_planner.observations import StartUp

# Energy counters advance every 20 to 100 ms, so the energy of a shorter time is too uncertain to count as measured.
MIN_MEASURED_SECONDS = 2.0


@dataclass(frozen=True)
class EpochUsage:
    """What an epoch uses, and what the attempt used before.

    Attributes:
        energy_joules: Energy of one epoch at the current power limit; None if not measured.
        time_seconds: Duration of one epoch; None together with the energy.
        start_up: What the attempt used before its epochs; None if not measured.
    """

    energy_joules: float | None = None
    time_seconds: float | None = None
    start_up: StartUp | None = None


def first_epoch_mark(progress: Progress) -> EpochMark | None:
    """Energy and time of the attempt at the first report of a complete epoch, by the processes' counters.

    None before it. A mark never changes.
    """
    if progress.first_epoch is not None or not progress.gpus or progress.epoch is None or progress.epoch < 1:
        return progress.first_epoch
    usage = usage_of(progress)
    if usage is None:
        return None
    return EpochMark.model_validate(
        {
            "epoch": progress.epoch,
            "energy_joules": round(float(usage.gpu_energy_joules), DECIMALS),
            "time_seconds": max(usage.duration_seconds, to_decimal(0)),
        }
    )


def epoch_usage(
    spec: TrainingRecurrenceSpec, progress: Progress, usage: Usage | None, epochs: Decimal | None
) -> EpochUsage:
    """Energy and time of one epoch at the current power limit, and of the start-up.

    They are the measured ones at that limit, or else the mean over the epochs after the first.

    While limits are being measured, none is known, because the current limit is not measured yet, or not
    by all ranks.

    Args:
        spec: The attempt's decision.
        progress: Its progress.
        usage: Its usage so far.
        epochs: Epochs run so far.
    """
    for point in complete_points(progress):
        if point.power_limit_watts == progress.power_limit_watts and point.epochs > 0:
            return EpochUsage(float(point.energy_joules / point.epochs), float(point.time_seconds / point.epochs))
    if spec.profile_power_limits or usage is None or not epochs:
        return EpochUsage()
    if progress.gpus:
        return _between(progress.first_epoch, usage_of(progress), progress.epoch, usage, epochs)
    if progress.agents is None:
        return EpochUsage()
    latest = progress.agents.latest
    return _mean_between(progress.agents.first, latest, usage, float(epochs))


def _between(
    first: EpochMark | None, own: Usage | None, reported: Decimal | None, usage: Usage, epochs: Decimal
) -> EpochUsage:
    """By the processes' counters at the first epoch and at the latest report."""
    if own is None or reported is None:
        return EpochUsage()
    if first is None or reported <= first.epoch > 1:
        # Written by a version without marks, or reports were lost. The start-up is a small part of several epochs.
        each = float(epochs)
        return EpochUsage(float(own.gpu_energy_joules) / each, float(own.duration_seconds) / each)
    latest = EpochMark(epoch=reported, energy_joules=own.gpu_energy_joules, time_seconds=own.duration_seconds)
    return _mean_between(first, latest, usage, float(epochs))


def _mean_between(first: EpochMark, latest: EpochMark, usage: Usage, epochs: float) -> EpochUsage:
    """The mean over the epochs between two marks; the start-up is what the attempt used beyond its epochs."""
    since = float(latest.epoch - first.epoch)
    total_energy, total_time = float(usage.gpu_energy_joules), float(usage.duration_seconds)
    if since <= 0:
        return EpochUsage()
    # The mean of the whole attempt is an upper bound: later epochs may take longer, but no start-up is negative.
    energy = min(float(latest.energy_joules - first.energy_joules) / since, total_energy / epochs)
    time = min(float(latest.time_seconds - first.time_seconds) / since, total_time / epochs)
    start_up = StartUp(max(total_energy - epochs * energy, 0.0), max(total_time - epochs * time, 0.0))
    if float(latest.time_seconds - first.time_seconds) < MIN_MEASURED_SECONDS:
        return EpochUsage(start_up=start_up)
    return EpochUsage(energy, time, start_up)
