"""What the trials of probes used: it is part of the attempt's usage and cost, and no policy learns from it.

A policy compares what a configuration costs from its start to the target. How often a job probes, and how large the
grid is, says nothing of that.
"""

from __future__ import annotations

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
from wattloop_operator.api.training_recurrence import Usage
from wattloop_operator.domain.probe_status import ProbeChoiceStatus, ProbesStatus, ProbeUsage
from wattloop_operator.domain.progress import Progress
from wattloop_operator.reconcile.energy.attempt_usage import DECIMALS, usage_of


def with_probes(progress: Progress, report: ProbeReport | None, *, restarted: bool) -> Progress:
    """The progress with what a newer report of rank 0 says of its probes.

    Args:
        progress: The progress with all else of the report.
        report: All trials of the reporting process; None if it has not probed.
        restarted: Whether it replaces an earlier process, whose trials count too.
    """
    before = progress.probes
    if report is None and (before is None or not restarted):
        return progress
    report = report or ProbeReport()
    earlier = None if before is None else _totals(before) if restarted else before.earlier
    used = _sum(earlier, report)
    chosen = tuple(map(_choice, report.choices))
    thresholds = {each.threshold for each in chosen}
    others = () if before is None else tuple(each for each in before.choices if each.threshold not in thresholds)
    status = ProbesStatus(
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


def _totals(status: ProbesStatus) -> ProbeUsage:
    return ProbeUsage(trials=status.trials, energy_joules=status.energy_joules, time_seconds=status.time_seconds)


def _sum(earlier: ProbeUsage | None, report: ProbeReport) -> ProbeUsage:
    trials, energy, time = report.trials, report.energy_joules, report.time_seconds
    if earlier is not None:
        trials, energy, time = (
            trials + earlier.trials,
            energy + float(earlier.energy_joules),
            time + float(earlier.time_seconds),
        )
    return ProbeUsage(
        trials=min(trials, MAX_TRIALS_OF_ATTEMPT),
        energy_joules=to_decimal(round(min(energy, MAX_PROBE_NUMBER), DECIMALS)),
        time_seconds=to_decimal(round(min(time, MAX_PROBE_SECONDS), DECIMALS)),
    )


def _choice(reported: ProbeChoice) -> ProbeChoiceStatus:
    watts = reported.power_limit_watts
    return ProbeChoiceStatus(
        threshold=to_decimal(reported.threshold),
        batch_size=reported.batch_size,
        parameters=reported.parameters,
        power_limit_watts=None if watts is None or watts < 1 else round(watts),
        trials=reported.trials,
        combinations=reported.combinations,
    )
