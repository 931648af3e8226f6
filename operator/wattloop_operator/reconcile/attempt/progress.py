"""What a report changes: a pure function of the recurrence and the report to its progress, and whether to stop.

Reports are cumulative and may arrive late, twice or out of order, from several processes: counters only rise, the
metric is that of the newest report of rank 0, and whether the target is reached is judged here, not by the process.
A process that is started again within its attempt goes on with the numbers of its reports, but counts epochs and
evaluations from 0: the epochs of those before it are added, its evaluations begin another row.
"""

from __future__ import annotations

from decimal import Decimal

from wattloop.environment import RunTarget
from wattloop.messages import MAX_NUMBER, GpuEnergy, Report
from wattloop_operator.api.attempt import GpuReading, ProfilePoint, Progress
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.objective import Direction, Target
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.reconcile.energy.usage import cost_of, usage_of

# Where the template asks for no GPUs: the whole of a rank's node each, of 128 nodes.
MAX_GPUS_OF_ATTEMPT = 1024
# A pod that is replaced within its attempt may get other GPUs: so often as with a Job's default backoffLimit, and more.
MAX_GPUS_PER_DEVICE = 8
ROUNDING = 1e-9


def target_of(target: Target) -> RunTarget:
    """The target as the training process is told it."""
    return RunTarget(
        target.metric,
        float(target.threshold),
        maximize=target.direction is Direction.MAXIMIZE,
        consecutive_evaluations=target.consecutive_evaluations,
    )


def progress_after(recurrence: TrainingRecurrence, report: Report) -> Progress:
    """The progress once a report is taken in; the same object's progress where the report says nothing new."""
    before = recurrence.status.progress or Progress()
    gpus = _merged(before.gpus, report.gpus, max_gpus(recurrence))
    counted = before.model_copy(
        update={
            "gpus": gpus,
            "gpu_product": report.gpu_product or before.gpu_product,
            "max_power_limit_watts": _max_power(report, len(gpus)) or before.max_power_limit_watts,
        }
    )
    if report.rank == 0 and report.sequence > before.sequence:
        counted = counted.model_copy(update=_news(recurrence, before, report))
    return with_stop(recurrence, counted)


def max_gpus(recurrence: TrainingRecurrence) -> int:
    """How many GPUs an attempt may report: by what its template asks for, and never more than the API allows."""
    return min(MAX_GPUS_PER_DEVICE * recurrence.status.devices or MAX_GPUS_OF_ATTEMPT, MAX_GPUS_OF_ATTEMPT)


def _news(recurrence: TrainingRecurrence, before: Progress, report: Report) -> dict[str, object]:
    anew = _started_anew(before, report)
    if anew:
        earlier = before.epoch
        before = before.model_copy(update={"evaluations": 0, "consecutive_reached": 0})
    else:
        earlier = before.earlier_epochs
    news: dict[str, object] = {
        "sequence": report.sequence,
        "epoch": to_decimal(min(report.epoch + float(earlier or 0), MAX_NUMBER)),
        "earlier_epochs": earlier,
        "evaluations": before.evaluations,
        "consecutive_reached": before.consecutive_reached,
        "power_limit_watts": _rounded(report.power_limit_watts),
        "power_limit_refusal": report.power_limit_refusal,
        "finished": before.finished or report.finished,
    }
    if report.profile:
        news["profile"] = tuple(
            ProfilePoint.model_validate(
                {
                    "power_limit_watts": round(point.power_limit_watts),
                    "energy_joules": point.energy_joules,
                    "time_seconds": point.time_seconds,
                    "epochs": point.epochs,
                }
            )
            for point in report.profile
        )
    if report.metric is not None and report.evaluations > before.evaluations:
        target = target_of(recurrence.spec.target)
        in_a_row = _in_a_row(before, report) if target.reached_by(report.metric) else 0
        news |= {
            "metric": to_decimal(report.metric),
            "evaluations": report.evaluations,
            "consecutive_reached": in_a_row,
            "reached": before.reached or in_a_row >= target.consecutive_evaluations,
        }
    return news


def _started_anew(before: Progress, report: Report) -> bool:
    """Whether a newer report is of another process than the newest before it: one process counts only upwards."""
    epochs = report.epoch + float(before.earlier_epochs or 0)
    fewer_epochs = epochs < float(before.epoch or 0) * (1 - ROUNDING) - ROUNDING
    return fewer_epochs or report.evaluations < before.evaluations


def _in_a_row(before: Progress, report: Report) -> int:
    """How many evaluations in a row reached the target: as counted here, and by the process where reports were lost."""
    most = before.consecutive_reached + report.evaluations - before.evaluations
    return before.consecutive_reached + 1 if report.reached_in_a_row is None else min(report.reached_in_a_row, most)


def _merged(before: tuple[GpuReading, ...], reported: tuple[GpuEnergy, ...], most: int) -> tuple[GpuReading, ...]:
    """The readings by uuid. Of more than `most` GPUs those are kept that were reported first."""
    merged = {reading.uuid: reading for reading in before}
    for gpu in reported:
        known = merged.get(gpu.uuid)
        if known is not None and gpu.energy_millijoules <= known.energy_millijoules:
            continue
        if known is None and len(merged) >= most:
            continue
        time = to_decimal(gpu.time_seconds)
        merged[gpu.uuid] = GpuReading(
            uuid=gpu.uuid,
            # The first start that was heard of stands: a process that was started anew does not forget what it used.
            start_energy_millijoules=gpu.start_energy_millijoules if known is None else known.start_energy_millijoules,
            energy_millijoules=gpu.energy_millijoules,
            start_time_seconds=to_decimal(gpu.start_time_seconds) if known is None else known.start_time_seconds,
            # Another process's clock may be behind: time, too, only moves on.
            time_seconds=max(time, time if known is None else known.time_seconds),
        )
    return tuple(merged[uuid] for uuid in sorted(merged))


def _max_power(report: Report, gpus: int) -> int | None:
    """Maximum power of all GPUs of the attempt: each process knows its own, and they are of one model."""
    return _rounded(report.max_power_limit_watts * gpus / max(len(report.gpus), 1))


def with_stop(recurrence: TrainingRecurrence, progress: Progress) -> Progress:
    """Ask to stop once the attempt has cost what it may; never after the target, never taken back."""
    bound = progress.stop_cost_joules if progress.reviewed else recurrence.spec.stop_cost_joules
    if progress.stop_requested or progress.reached or progress.finished or bound is None:
        return progress
    cost = cost_of(recurrence.spec, progress, usage_of(progress))
    # A bound that is paid already stops at once, though it was rounded when it was written down.
    if cost is None or cost < float(bound) * (1 - ROUNDING):
        return progress
    reason = (
        f"it has cost {cost:.0f} J after {progress.epoch or Decimal(0)} epochs without reaching the target; "
        f"the policy allows {float(bound):.0f} J"
    )
    return progress.model_copy(update={"stop_requested": True, "stop_reason": reason})


def _rounded(watts: float | None) -> int | None:
    return None if watts is None or watts < 1 else round(watts)
