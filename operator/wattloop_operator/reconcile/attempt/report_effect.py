"""The effect of a report on an attempt's progress, as a pure function.

Reports are cumulative and may arrive late, twice or out of order, from several processes
(docs/internals/reporting.md). Whether the target is reached is decided here. A process that is started again counts
from 0; processes are ordered by their first reports, and their epochs add up. No clock takes part. Of a full curve the
first, the latest and the best evaluation are kept, and the one whose neighbours are closest in epochs is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from wattloop.wire.training_messages import MAX_NUMBER, MAX_RANKS, GpuEnergy, LimitMeasurement, Report
from wattloop_operator.api.batch_size import DecisionKind
from wattloop_operator.api.curve_field import MAX_CURVE_POINTS
from wattloop_operator.api.field_types import format_decimal, to_decimal
from wattloop_operator.api.model_output import AttemptModel
from wattloop_operator.api.reporting_source import ReportingSource
from wattloop_operator.domain.names import attempt_path
from wattloop_operator.domain.progress import MAX_PROCESSES, Progress, ReportingProcess
from wattloop_operator.domain.quantities import epochs_text
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.early_stop import ROUNDING, has_moved_away
from wattloop_operator.reconcile.attempt.ended_ranks import ends_after
from wattloop_operator.reconcile.energy.counted_intervals import devices_at_once, readings_after
from wattloop_operator.reconcile.energy.epoch_usage import first_epoch_mark, with_probes
from wattloop_operator.reconcile.energy.limit_measurements import profile_after, ranks_after
from wattloop_planner.metric_curve import MetricCurve

# If the template requests no GPUs: all GPUs of one node for each rank, for 128 nodes.
MAX_GPUS_OF_ATTEMPT = 1024
# A pod that is replaced within its attempt may get other GPUs. A Job's default backoffLimit allows
# 6 replacements.
MAX_GPUS_PER_DEVICE = 8
# Some libraries write epochs with two decimals. A smaller decrease is no restart of the training.
EPOCH_ROUNDING = 0.01


def progress_after(recurrence: TrainingAttempt, report: Report) -> Progress:
    """The progress after a report; equal to the current one if the report is not new."""
    before = recurrence.progress
    gpus = readings_after(before.gpus, report, max_gpus(recurrence))
    place = _place_of(before.processes, report)
    is_newest = place is not None and place >= len(before.processes) - 1
    ranks = min(ranks_after(before, report), MAX_RANKS)
    progress = before.model_copy(
        update={
            "ranks": ranks,
            # A late report tells nothing of the processes that run now.
            **(ends_after(before, report) if is_newest or report.rank else {}),
            "batch_size": report.batch_size or before.batch_size,
            "gpus": gpus,
            "profile": profile_after(before, report, ranks=ranks, is_newest=is_newest),
            "gpu_product": report.gpu_product or before.gpu_product,
            "max_power_limit_watts": _rounded(
                report.max_power_limit_watts * devices_at_once(gpus) / max(len(report.gpus), 1)
            )
            or before.max_power_limit_watts,
        }
    )
    if place is not None:
        progress = _with_training(recurrence, progress, report, place, is_newest=is_newest)
    if is_newest:
        progress = with_probes(progress, report.probes, restarted=0 < len(before.processes) == place)
    return progress.model_copy(update={"first_epoch": first_epoch_mark(progress)})


def progress_after_output(recurrence: TrainingAttempt, seen: OutputReport) -> Progress:
    """The progress after something was seen of a training that does not use the client."""
    before = recurrence.progress
    if before.reached or before.diverged:
        # The training goes on until it has been ended, but its outcome is known already.
        seen = replace(seen, metric=None, epoch=None)
    progress = _progress_within_limits(recurrence, seen)
    # It comes from no process, so it tells nothing of the end or the restart of one.
    update: dict[str, object] = {"ended_ranks": before.ended_ranks, "first_failure": before.first_failure}
    if seen.is_followed:
        update["first_epoch"] = before.first_epoch
    update["processes"] = tuple(
        each.model_copy(update={"counts_from_0": seen.counts_from_0}) if each.id == seen.process else each
        for each in progress.processes
    )
    progress = progress.model_copy(update=update)
    is_new = _evaluations(progress) != _evaluations(before) or progress.diverged != before.diverged
    if not (is_new and seen.evaluation):
        return progress
    return progress.model_copy(update={"latest_evaluation": seen.evaluation})


def _progress_within_limits(recurrence: TrainingAttempt, seen: OutputReport) -> Progress:
    """The progress by what counts: up to the last epoch, and after a request to end only what goes on."""
    before, most = recurrence.progress, recurrence.spec.max_epochs
    report = report_of(before, seen)
    progress = progress_after(recurrence, report)
    excess = float(progress.epoch or 0) - most
    goes_on = len(progress.processes) == len(before.processes) and (progress.epoch or 0) > (before.epoch or 0)
    if before.stop_requested and not goes_on:
        # A script that is asked to end may print its best epoch again.
        return progress_after(recurrence, report_of(before, replace(seen, metric=None, epoch=None)))
    # A termination message tells of the whole training, and of nothing before its end.
    if excess <= 0 or recurrence.spec.reporting.source is ReportingSource.TERMINATION_MESSAGE:
        return progress
    last = replace(seen, metric=None, epoch=report.epoch - excess)
    reason = before.stop_reason or f"it went on after {epochs_text(most)}, its objective.maxEpochs"
    return progress_after(recurrence, report_of(before, last)).model_copy(
        update={"stop_requested": True, "stop_reason": reason}
    )


def _evaluations(progress: Progress) -> list[int]:
    return [process.evaluations for process in progress.processes]


def max_gpus(recurrence: TrainingAttempt) -> int:
    """Maximum number of GPUs that an attempt may report.

    It is a multiple of what the template requests, within the API's maximum.
    """
    return min(MAX_GPUS_PER_DEVICE * recurrence.status.devices or MAX_GPUS_OF_ATTEMPT, MAX_GPUS_OF_ATTEMPT)


def is_of_unknown_process(before: Progress, report: Report) -> bool:
    """Whether a report is of a process of rank 0 that has not reported before, and another one has.

    Example:
        >>> known = Progress(processes=(ReportingProcess(id="a"),))
        >>> first, second = (Report(process=name, sequence=1, epoch=0.0) for name in "ab")
        >>> [is_of_unknown_process(known, each) for each in (first, second)], is_of_unknown_process(Progress(), first)
        ([False, True], False)
    """
    known = {each.id for each in before.processes}
    return report.rank == 0 and bool(known) and report.process not in known


def _place_of(processes: Sequence[ReportingProcess], report: Report) -> int | None:
    """The place among the processes of rank 0 of the one that sent a report; None if the report is not new.

    A process that was not seen before is the last one, and so is one that counts from 0 again.
    """
    if report.rank != 0 or report.sequence < 1:
        return None
    known = [place for place, process in enumerate(processes) if process.id == report.process]
    if not known:
        return len(processes)
    process = processes[known[-1]]
    if report.sequence <= process.sequence:
        return None
    return len(processes) if _counts_again(process, report) else known[-1]


def _with_training(
    recurrence: TrainingAttempt, progress: Progress, report: Report, place: int, *, is_newest: bool
) -> Progress:
    """The progress with what a report of rank 0 says of the training.

    `is_newest`: whether no process has started since.
    """
    processes, target = list(progress.processes), recurrence.spec.target.run_target
    if place == len(processes):
        processes.append(ReportingProcess(id=report.process))
    before = processes[place]
    epoch = max(to_decimal(min(report.epoch, MAX_NUMBER)), before.epoch)
    is_evaluated = not report.diverged and report.metric is not None and report.evaluations > before.evaluations
    consecutive = before.consecutive_reached
    if report.diverged or is_evaluated:
        reaches = is_evaluated and report.metric is not None and target.reached_by(report.metric)
        consecutive = _consecutive_reached(before, report) if reaches else 0
    processes[place] = before.model_copy(
        update={
            "sequence": report.sequence,
            "epoch": epoch,
            "evaluations": report.evaluations if report.diverged or is_evaluated else before.evaluations,
            "consecutive_reached": consecutive,
        }
    )
    start = _total(processes[:place])
    # A late report of a process moves what its successors have reported.
    curve = _moved(progress.curve, after=_stored_epoch(start + before.epoch), epochs=float(epoch - before.epoch))
    if is_evaluated and report.metric is not None and epoch > 0:
        curve = curve_with(curve, float(start + epoch), report.metric, maximize=target.maximize)
    has_moved = is_evaluated and recurrence.spec.decision.kind is DecisionKind.TRIAL and has_moved_away(curve, target)
    reached = progress.reached or consecutive >= target.consecutive_evaluations
    update: dict[str, object] = {
        "processes": _bounded(processes),
        "epoch": _total(processes),
        "curve": curve,
        "diverged": progress.diverged or report.diverged or has_moved,
        "reached": reached,
        "finished": progress.finished or report.finished,
    }
    if is_newest:
        update |= {
            "power_limit_watts": _rounded(report.power_limit_watts),
            "power_limit_refusal": report.power_limit_refusal,
            "published": progress.published
            if report.published is None or not reached or recurrence.spec.output_directory is None
            else AttemptModel(path=attempt_path(report.published.folder), digest=report.published.digest),
        }
    if is_evaluated and report.metric is not None and not any(each.evaluations for each in processes[place + 1 :]):
        update["metric"] = to_decimal(report.metric)
    return progress.model_copy(update=update)


def _bounded(processes: Sequence[ReportingProcess]) -> tuple[ReportingProcess, ...]:
    """The processes; of too many, the oldest one's epochs are added to those of the next."""
    if len(processes) <= MAX_PROCESSES:
        return tuple(processes)
    oldest, following, *others = processes
    return (following.model_copy(update={"epoch": _total([oldest, following])}), *others)


def _total(processes: Iterable[ReportingProcess]) -> Decimal:
    return to_decimal(min(float(sum(each.epoch for each in processes)), MAX_NUMBER))


def _counts_again(process: ReportingProcess, report: Report) -> bool:
    """Whether a newer report counts from 0 again: a training that was started again under the same name."""
    fewer_epochs = report.epoch < float(process.epoch) * (1 - ROUNDING) - ROUNDING
    return fewer_epochs or report.evaluations < process.evaluations


def _consecutive_reached(before: ReportingProcess, report: Report) -> int:
    """Consecutive evaluations that reached the target, counted here, or by the process if reports were lost."""
    if report.consecutive_reached is None:
        return before.consecutive_reached + 1
    return min(report.consecutive_reached, before.consecutive_reached + report.evaluations - before.evaluations)


def _rounded(watts: float | None) -> int | None:
    return None if watts is None or watts < 1 else round(watts)


def curve_with(curve: MetricCurve | None, epoch: float, metric: float, *, maximize: bool) -> MetricCurve | None:
    """The curve with one more evaluation.

    Of several evaluations at one epoch the best one counts. An evaluation before any training is not part of the curve.

    `curve`: the evaluations so far; None if there are none. `maximize`: whether higher is better.
    """
    epoch, metric = _stored_epoch(epoch), _stored(metric)
    if epoch <= 0:
        return curve
    points = {} if curve is None else dict(zip(curve.epochs, curve.metrics, strict=True))
    points[epoch] = (max if maximize else min)(metric, points.get(epoch, metric))
    epochs = sorted(points)
    if len(epochs) > MAX_CURVE_POINTS:
        best = (max if maximize else min)(epochs, key=points.__getitem__)
        inner = (index for index in range(1, len(epochs) - 1) if epochs[index] != best)
        del epochs[min(inner, key=lambda index: epochs[index + 1] - epochs[index - 1])]
    return MetricCurve(tuple(epochs), tuple(points[each] for each in epochs))


def _moved(curve: MetricCurve | None, *, after: float, epochs: float) -> MetricCurve | None:
    """The curve with its evaluations after an epoch that many epochs later."""
    if curve is None or epochs <= 0 or curve.epochs[-1] <= after:
        return curve
    moved = (_stored_epoch(each + epochs) if each > after else each for each in curve.epochs)
    points = dict(zip(moved, curve.metrics, strict=True))
    return MetricCurve(tuple(points), tuple(points.values()))


def _stored_epoch(epoch: float | Decimal) -> float:
    return _stored(min(float(epoch), MAX_NUMBER))


def _stored(number: float) -> float:
    """The number as it is read again from its wire form, so that epochs still rise then."""
    return float(format_decimal(to_decimal(number)))


@dataclass(frozen=True)
class ObservedGpus:
    """The GPUs of a training, read from outside.

    Attributes:
        energies: Energy counters at the start of the attempt and now.
        max_power_limit_watts: Sum of their maximum power limits.
        power_limit_watts: The limit held now on each GPU; None if none is held.
        power_limit_refusal: Why the requested limit is not held.
    """

    energies: tuple[GpuEnergy, ...] = ()
    product: str = ""
    max_power_limit_watts: float = 0.0
    power_limit_watts: float | None = None
    power_limit_refusal: str = ""
    profile: tuple[LimitMeasurement, ...] = ()


@dataclass(frozen=True)
class OutputReport:
    """What was seen of a training.

    Attributes:
        position: Where it was seen. Only a position above all earlier ones changes epoch and metric.
        metric: The metric of an evaluation, NaN or infinite if the training diverged; None if there was no
            evaluation.
        epoch: Epochs completed; None if not known. Then each evaluation counts as one epoch.
        evaluation: Identifies the evaluation if values of one evaluation are seen repeatedly; empty: each is
            a new one.
        finished: Whether nothing more follows.
        is_followed: Whether later values were seen at the same moment. The GPUs were read once for all of them, so only
            the last one tells what an epoch cost, and only it is judged.
        process: The process that it was seen of; a container that is started again is another one.
        has_clock_position: Whether the position is a time of the process's clock, which may be set back: more epochs
            are newer then too. Fewer epochs at an earlier time are of a late status, or of a training that was
            started again in the same process after the clock was set back: they do not count.
        counts_from_0: Whether the output has shown that its first epoch is epoch 0. A later reader may not have the
            line that did.
    """

    position: int
    metric: float | None = None
    epoch: float | None = None
    evaluation: str = ""
    gpus: ObservedGpus = ObservedGpus()
    finished: bool = False
    is_followed: bool = False
    process: str = ""
    has_clock_position: bool = False
    counts_from_0: bool = False


def report_of(before: Progress, seen: OutputReport) -> Report:
    """The report that the training would have sent."""
    evaluated = seen.metric is not None and (not seen.evaluation or seen.evaluation != before.latest_evaluation)
    known = (each for each in reversed(before.processes) if each.id == seen.process)
    process = next(known, ReportingProcess(id=seen.process))
    epochs_before = float(process.epoch)
    if seen.epoch is None:
        epoch = epochs_before + (1 if evaluated else 0)
    else:
        is_rounded = epochs_before - EPOCH_ROUNDING <= seen.epoch < epochs_before
        epoch = epochs_before if is_rounded else seen.epoch
    finite = seen.metric is not None and math.isfinite(seen.metric)
    metric = min(max(seen.metric, -MAX_NUMBER), MAX_NUMBER) if seen.metric is not None and finite else None
    is_clock_behind = seen.has_clock_position and seen.position <= process.sequence and epoch > epochs_before
    return Report(
        process=seen.process,
        sequence=process.sequence + 1 if is_clock_behind else seen.position,
        epoch=min(epoch, MAX_NUMBER),
        metric=metric if evaluated else None,
        diverged=evaluated and not finite,
        evaluations=process.evaluations + (1 if evaluated else 0),
        gpus=seen.gpus.energies,
        gpu_product=seen.gpus.product,
        max_power_limit_watts=seen.gpus.max_power_limit_watts,
        power_limit_watts=seen.gpus.power_limit_watts,
        power_limit_refusal=seen.gpus.power_limit_refusal,
        profile=seen.gpus.profile,
        finished=seen.finished,
    )
