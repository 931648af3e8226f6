"""Energy and time of one epoch of an attempt, and what it used before its epochs and for the trials of probes.

The start of a training falls into its first epoch. So the epochs after the first one give the cost of an epoch, and the
rest of the attempt is its start-up. Trials are part of its usage and cost, and no policy learns from them.
"""

from dataclasses import dataclass
from decimal import Decimal

from wattloop.wire.training_messages import (
    MAX_PROBE_NUMBER,
    MAX_PROBE_SECONDS,
    MAX_THRESHOLDS,
    MAX_TRIALS_OF_ATTEMPT,
    ProbeChoice,
    ProbeReport,
)
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.training_recurrence import TrainingRecurrenceSpec, Usage
from wattloop_operator.domain.gpu_readings import EpochMark, ProfilePoint
from wattloop_operator.domain.progress import ProbeOutcome, ProbeProgress, ProbeUsage, Progress
from wattloop_operator.reconcile.energy.attempt_usage import DECIMALS, usage_of
from wattloop_operator.reconcile.energy.limit_measurements import complete_points
from wattloop_planner.observations import StartUp

# Energy counters advance every 20 to 100 ms, so the energy of a shorter time is too uncertain to count as measured.
MIN_MEASURED_SECONDS = 2.0
# Longer than the first measurement of a power limit takes.
MIN_UNMEASURED_SECONDS = 60.0


@dataclass(frozen=True)
class EpochUsage:
    """What an epoch uses, and what the attempt used before.

    Attributes:
        energy_joules: Energy of one epoch at the current power limit; None if not measured.
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
    usage = usage_without_trials(progress)
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

    The epoch is the measured one at that limit, or else the mean over the epochs after the first.

    While limits are being measured, the epoch is not known, because the current limit is not measured yet, or not
    by all ranks. Until the first measurement, all epochs run at one limit: a training that shows no steps never
    measures one.
    """
    # Trials are no epochs, and no start of one.
    usage = None if usage is None else without_trials(usage, progress)
    points = complete_points(progress)
    if points or progress.profile:
        start_up = None if usage is None else _start_up_beside(points, progress, usage)
        for point in points:
            if point.power_limit_watts == progress.power_limit_watts and point.epochs > 0:
                energy, time = point.energy_joules / point.epochs, point.time_seconds / point.epochs
                return EpochUsage(float(energy), float(time), start_up)
        return EpochUsage(start_up=start_up)
    if usage is None or not epochs:
        return EpochUsage()
    first, latest = _marks(progress)
    if latest is None:
        return EpochUsage()
    if first is None or (progress.gpus and latest.epoch <= first.epoch > 1):
        # Written by a version without marks, or reports were lost. The start-up is a small part of several epochs.
        found = EpochUsage(float(latest.energy_joules) / float(epochs), float(latest.time_seconds) / float(epochs))
    else:
        found = _mean_between(first, latest, usage, float(epochs))
    is_long = first is not None and latest.time_seconds - first.time_seconds >= MIN_UNMEASURED_SECONDS
    if spec.profile_power_limits and not progress.is_ending and not is_long:
        # The first measurement may still go on.
        return EpochUsage(start_up=found.start_up)
    return found


def _marks(progress: Progress) -> tuple[EpochMark | None, EpochMark | None]:
    """Energy and time at the first epoch and at the latest report, from the source that reported the GPUs."""
    if not progress.gpus:
        return (None, None) if progress.agents is None else (progress.agents.first, progress.agents.latest)
    usage = usage_without_trials(progress)
    if usage is None or progress.epoch is None:
        return progress.first_epoch, None
    latest = EpochMark(
        epoch=progress.epoch,
        energy_joules=usage.gpu_energy_joules,
        time_seconds=max(usage.duration_seconds, to_decimal(0)),
    )
    return progress.first_epoch, latest


def _start_up_beside(points: tuple[ProfilePoint, ...], progress: Progress, usage: Usage) -> StartUp | None:
    """What an attempt that measures power limits used before its epochs.

    It is what it had used at the first epoch's end beyond the epochs until then, and what its usage has that the
    training's own marks lack.
    """
    first, latest = _marks(progress)
    measured = tuple(point for point in points if point.epochs > 0)
    if first is None or latest is None or not measured:
        return None
    energy, time = _used_by_epochs(measured, float(first.epoch), progress.power_limit_watts)
    beyond_energy = max(float(usage.gpu_energy_joules - latest.energy_joules), 0.0)
    beyond_time = max(float(usage.duration_seconds - latest.time_seconds), 0.0)
    return StartUp(
        max(float(first.energy_joules) - energy, 0.0) + beyond_energy,
        max(float(first.time_seconds) - time, 0.0) + beyond_time,
    )


def _used_by_epochs(points: tuple[ProfilePoint, ...], epochs: float, limit_watts: int | None) -> tuple[float, float]:
    """Energy and time of the first epochs of an attempt: those at the measured limits, then those at the current one.

    If the limits were measured beyond these epochs, the mean of all limits counts.
    """
    held = float(sum(point.epochs for point in points))
    energy = float(sum(point.energy_joules for point in points))
    time = float(sum(point.time_seconds for point in points))
    later = next((point for point in points if point.power_limit_watts == limit_watts), None)
    if later is None or held >= epochs:
        return energy * epochs / held, time * epochs / held
    left = (epochs - held) / float(later.epochs)
    return energy + left * float(later.energy_joules), time + left * float(later.time_seconds)


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


def with_probes(progress: Progress, report: ProbeReport | None, *, restarted: bool) -> Progress:
    """The progress with what a newer report of rank 0 says of its probes.

    `report`: all trials of the reporting process; None if it has not probed. `restarted`: whether it replaces an
    earlier process, whose trials count too.
    """
    before = progress.probes
    if report is None and (before is None or not restarted):
        return progress
    report = report or ProbeReport()
    earlier = None if before is None else _totals(before) if restarted else before.earlier
    trials, energy, time = report.trials, report.energy_joules, report.time_seconds
    if earlier is not None:
        trials, energy, time = (
            trials + earlier.trials,
            energy + float(earlier.energy_joules),
            time + float(earlier.time_seconds),
        )
    used = ProbeUsage(
        trials=min(trials, MAX_TRIALS_OF_ATTEMPT),
        energy_joules=to_decimal(round(min(energy, MAX_PROBE_NUMBER), DECIMALS)),
        time_seconds=to_decimal(round(min(time, MAX_PROBE_SECONDS), DECIMALS)),
    )
    chosen = tuple(map(_choice, report.choices))
    thresholds = {each.threshold for each in chosen}
    others = () if before is None else tuple(each for each in before.choices if each.threshold not in thresholds)
    status = ProbeProgress(
        trials=used.trials,
        energy_joules=used.energy_joules,
        time_seconds=used.time_seconds,
        choices=(*others, *chosen)[-2 * MAX_THRESHOLDS :],
        problem=report.problem,
        earlier=earlier,
    )
    return progress.model_copy(update={"probes": status})


def without_trials(usage: Usage, progress: Progress) -> Usage:
    """The usage of an attempt without that of its trials, at least 0."""
    probes = progress.probes
    if probes is None:
        return usage
    return usage.model_copy(
        update={
            "gpu_energy_joules": max(usage.gpu_energy_joules - probes.energy_joules, Decimal(0)),
            "duration_seconds": max(usage.duration_seconds - probes.time_seconds, Decimal(0)),
        }
    )


def usage_without_trials(progress: Progress) -> Usage | None:
    """The same of the usage so far; None if no counter was reported."""
    usage = usage_of(progress)
    return None if usage is None else without_trials(usage, progress)


def _totals(status: ProbeProgress) -> ProbeUsage:
    return ProbeUsage(trials=status.trials, energy_joules=status.energy_joules, time_seconds=status.time_seconds)


def _choice(reported: ProbeChoice) -> ProbeOutcome:
    watts = reported.power_limit_watts
    return ProbeOutcome(
        threshold=to_decimal(reported.threshold),
        batch_size=reported.batch_size,
        parameters=reported.parameters,
        power_limit_watts=None if watts is None or watts < 1 else round(watts),
        trials=reported.trials,
        combinations=reported.combinations,
    )
