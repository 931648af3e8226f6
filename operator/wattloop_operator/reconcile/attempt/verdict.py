"""The verdict on an epoch: whether the ranks of an attempt go on after it, decided once for all of them.

A verdict is part of the progress, is written before it is answered, and never changes. It is decided when rank 0, which
reports the metric, asks; the other ranks wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from wattloop.wire import training_messages
from wattloop.wire.training_messages import MAX_REASON_CHARACTERS, Answer, Report
from wattloop_operator.domain.gpu_readings import PowerLimitSchedule
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.energy.counted_intervals import devices_at_once
from wattloop_operator.reconcile.energy.limit_measurements import complete_points

# A verdict covers further epochs if they are short. A stop is late by at most this part of the epochs so far.
MAX_DELAY_DIVISOR = 20


def with_verdict(progress: Progress, reports: Iterable[Report]) -> Progress:
    """The progress with the verdicts that rank 0 asks for in these reports; a known verdict stays."""
    for report in reports:
        epoch = report.verdict_epoch
        known = progress.stop_epoch is not None or (epoch or 0) <= progress.decided_epoch
        if report.rank != 0 or epoch is None or known:
            continue
        if progress.reached or progress.stop_requested:
            return progress.model_copy(update={"stop_epoch": epoch})
        further = min(report.epochs_ahead, epoch // MAX_DELAY_DIVISOR)
        progress = _with_schedule(progress.model_copy(update={"decided_epoch": epoch + further}), report)
    return progress


def _with_schedule(progress: Progress, report: Report) -> Progress:
    """The progress with what is decided about power limits together with the verdict.

    At first the schedule that rank 0 proposes, and once all ranks have measured, the end of the measurement. So
    every rank that goes on after the epoch knows what begins with it.
    """
    known, proposed = progress.limit_schedule, report.limit_schedule
    if known is not None and known.choice_epoch is None and _shared_profile(progress, known):
        return progress.model_copy(
            update={"limit_schedule": known.model_copy(update={"choice_epoch": report.verdict_epoch})}
        )
    if known is not None or proposed is None or not proposed.limits_watts:
        return progress
    if proposed.after_epoch != report.verdict_epoch:
        return progress
    decided = PowerLimitSchedule(
        after_epoch=proposed.after_epoch, steps=proposed.steps, limits_watts=proposed.limits_watts
    )
    return progress.model_copy(update={"limit_schedule": decided})


def answer_to(recurrence: TrainingAttempt, report: Report) -> Answer:
    """The answer to a report that is merged into the recurrence.

    For a rank that asks for a verdict, only the verdict decides whether the answer is to stop. The answer to every
    other report is whether the attempt is to stop.
    """
    status = recurrence.status
    progress = recurrence.progress
    stop, reason = progress.stop_requested, progress.stop_reason
    if status.result is not None:
        stop, reason = True, f"the attempt has ended: {status.message}"[:MAX_REASON_CHARACTERS]
    stop_epoch = (
        progress.stop_epoch
        if progress.stop_epoch is not None or status.result is None
        else (progress.decided_epoch + 1)
    )
    if report.verdict_epoch is not None:
        stop = stop_epoch is not None and report.verdict_epoch >= stop_epoch
    answer = Answer(
        stop=stop,
        reason=reason if stop else "",
        reached=progress.reached,
        decided_epoch=progress.decided_epoch,
        stop_epoch=stop_epoch,
    )
    if progress.limit_schedule is None:
        return answer
    schedule = progress.limit_schedule
    decided = training_messages.LimitSchedule(schedule.after_epoch, schedule.steps, schedule.limits_watts)
    if schedule.choice_epoch is None:
        return replace(answer, limit_schedule=decided)
    return replace(
        answer,
        limit_schedule=decided,
        choice_epoch=schedule.choice_epoch,
        profile=_shared_profile(progress, schedule),
        profile_gpus=devices_at_once(progress.gpus),
    )


def _shared_profile(progress: Progress, schedule: PowerLimitSchedule) -> tuple[training_messages.LimitMeasurement, ...]:
    """What all ranks have measured, once they have measured the last limit; it does not change any more.

    Reports repeat all measurements, so with the last limit of a rank its earlier ones are known too.
    """
    points = complete_points(progress)
    if not any(point.power_limit_watts == schedule.limits_watts[-1] for point in points):
        return ()
    return tuple(
        training_messages.LimitMeasurement(
            float(point.power_limit_watts),
            float(point.energy_joules),
            min(float(point.time_seconds), training_messages.MAX_TIME_SECONDS),
            float(point.epochs),
        )
        for point in points
    )
