"""The effect of a report on an attempt's progress, as a pure function.

Reports are cumulative and may arrive late, twice or out of order, from several processes. Energy is that of
all processes (`reconcile.energy.counted_intervals`) and ranks (`reconcile.energy.limit_measurements`). The
metric is that of the newest report of rank 0, and each of its evaluations is a point of the curve. Whether the
target is reached is decided here, not by the process. A process that restarts within its attempt counts
epochs and evaluations from 0: the epochs of its predecessors are added, so that its curve continues
theirs, and its evaluations begin a new sequence.

A curve has a bounded size. The first, the latest and the best evaluation are always kept. Of the others, the
one whose neighbours are closest to each other in epochs is dropped when the curve is full, so that the
remaining ones stay spread over all epochs.
"""

from __future__ import annotations

from dataclasses import replace

from wattloop.wire.training_messages import MAX_NUMBER, MAX_RANKS, Report
from wattloop_operator.api.attempt_state import Progress
from wattloop_operator.api.batch_size_policy import DecisionKind
from wattloop_operator.api.curve_field import MAX_CURVE_POINTS
from wattloop_operator.api.field_types import format_decimal, to_decimal
from wattloop_operator.api.model_output import AttemptModel
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.names import attempt_path
from wattloop_operator.reconcile.attempt.early_stop import ROUNDING, has_moved_away
from wattloop_operator.reconcile.attempt.ended_ranks import ends_after
from wattloop_operator.reconcile.attempt.output_report import OutputReport, report_of
from wattloop_operator.reconcile.energy.counted_intervals import devices_at_once, readings_after
from wattloop_operator.reconcile.energy.epoch_usage import first_epoch_mark
from wattloop_operator.reconcile.energy.limit_measurements import profile_after, ranks_after
from wattloop_operator.reconcile.energy.probe_usage import with_probes
from wattloop_planner.metric_curve import MetricCurve

# If the template requests no GPUs: all GPUs of one node for each rank, for 128 nodes.
MAX_GPUS_OF_ATTEMPT = 1024
# A pod that is replaced within its attempt may get other GPUs. A Job's default backoffLimit allows
# 6 replacements.
MAX_GPUS_PER_DEVICE = 8


def progress_after(recurrence: TrainingRecurrence, report: Report) -> Progress:
    """The progress after a report; equal to the current one if the report is not new."""
    before = recurrence.progress
    gpus = readings_after(before.gpus, report, max_gpus(recurrence))
    is_newest = report.rank == 0 and report.sequence > before.sequence
    ranks = min(ranks_after(before, report), MAX_RANKS)
    progress = before.model_copy(
        update={
            "ranks": ranks,
            **ends_after(before, report),
            "batch_size": report.batch_size or before.batch_size,
            "gpus": gpus,
            "profile": profile_after(before, report, ranks=ranks, is_newest=is_newest),
            "gpu_product": report.gpu_product or before.gpu_product,
            "max_power_limit_watts": _max_power(report, devices_at_once(gpus)) or before.max_power_limit_watts,
        }
    )
    if is_newest:
        progress = progress.model_copy(update=_training_update(recurrence, before, report))
        progress = with_probes(progress, report.probes, restarted=_has_restarted(before, report))
    return progress.model_copy(update={"first_epoch": first_epoch_mark(progress)})


def progress_after_output(recurrence: TrainingRecurrence, seen: OutputReport) -> Progress:
    """The progress after something was seen of a training that does not use the client."""
    before = recurrence.progress
    if before.reached or before.diverged:
        # The training goes on until it has been ended, but its outcome is known already.
        seen = replace(seen, metric=None, epoch=None)
    progress = progress_after(recurrence, report_of(before, seen))
    # It comes from no process, so it tells nothing of the end or the restart of one.
    progress = progress.model_copy(update={"ended_ranks": before.ended_ranks, "first_failure": before.first_failure})
    is_new = progress.evaluations != before.evaluations or progress.diverged != before.diverged
    if not (is_new and seen.evaluation):
        return progress
    return progress.model_copy(update={"latest_evaluation": seen.evaluation})


def max_gpus(recurrence: TrainingRecurrence) -> int:
    """Maximum number of GPUs that an attempt may report.

    It is a multiple of what the template requests, within the API's maximum.
    """
    return min(MAX_GPUS_PER_DEVICE * recurrence.status.devices or MAX_GPUS_OF_ATTEMPT, MAX_GPUS_OF_ATTEMPT)


def _training_update(recurrence: TrainingRecurrence, before: Progress, report: Report) -> dict[str, object]:
    """The fields that a newer report of rank 0 changes."""
    if _has_restarted(before, report):
        earlier_epochs = before.epoch
        before = before.model_copy(update={"evaluations": 0, "consecutive_reached": 0})
    else:
        earlier_epochs = before.earlier_epochs
    epoch = to_decimal(min(report.epoch + float(earlier_epochs or 0), MAX_NUMBER))
    update: dict[str, object] = {
        "sequence": report.sequence,
        "epoch": epoch,
        "earlier_epochs": earlier_epochs,
        "evaluations": before.evaluations,
        "consecutive_reached": before.consecutive_reached,
        "power_limit_watts": _rounded(report.power_limit_watts),
        "power_limit_refusal": report.power_limit_refusal,
        "finished": before.finished or report.finished,
    }
    if report.diverged:
        update |= {"diverged": True, "evaluations": report.evaluations, "consecutive_reached": 0}
    elif report.metric is not None and report.evaluations > before.evaluations:
        target = recurrence.spec.target.run_target
        consecutive = _consecutive_reached(before, report) if target.reached_by(report.metric) else 0
        curve = curve_with(before.curve, float(epoch), report.metric, maximize=target.maximize)
        is_trial = recurrence.spec.decision.kind is DecisionKind.TRIAL
        update |= {
            "metric": to_decimal(report.metric),
            "curve": curve,
            "diverged": before.diverged or (is_trial and has_moved_away(curve, target)),
            "evaluations": report.evaluations,
            "consecutive_reached": consecutive,
            "reached": before.reached or consecutive >= target.consecutive_evaluations,
        }
    reached = bool(update.get("reached", before.reached))
    update["published"] = _published(recurrence, before, report, reached=reached)
    return update


def _published(
    recurrence: TrainingRecurrence, before: Progress, report: Report, *, reached: bool
) -> AttemptModel | None:
    """What the attempt has published; nothing before its target is reached, whatever its process reports."""
    if report.published is None or not reached or recurrence.spec.output_directory is None:
        return before.published
    return AttemptModel(path=attempt_path(report.published.folder), digest=report.published.digest)


def _has_restarted(before: Progress, report: Report) -> bool:
    """Whether a newer report comes from another process than the one before.

    One process only counts upwards.
    """
    epochs = report.epoch + float(before.earlier_epochs or 0)
    fewer_epochs = epochs < float(before.epoch or 0) * (1 - ROUNDING) - ROUNDING
    return fewer_epochs or report.evaluations < before.evaluations


def _consecutive_reached(before: Progress, report: Report) -> int:
    """Consecutive evaluations that reached the target.

    They are counted here, or by the process if reports were lost.
    """
    maximum = before.consecutive_reached + report.evaluations - before.evaluations
    return (
        before.consecutive_reached + 1
        if report.consecutive_reached is None
        else min(report.consecutive_reached, maximum)
    )


def _max_power(report: Report, gpus: int) -> int | None:
    """Maximum power of all GPUs of the attempt.

    Each process reports its own GPUs, which are of one model.
    """
    return _rounded(report.max_power_limit_watts * gpus / max(len(report.gpus), 1))


def _rounded(watts: float | None) -> int | None:
    return None if watts is None or watts < 1 else round(watts)


def curve_with(curve: MetricCurve | None, epoch: float, metric: float, *, maximize: bool) -> MetricCurve | None:
    """The curve with one more evaluation.

    Of several evaluations at the latest epoch the best one counts. An evaluation before any
    training is not part of the curve.

    Args:
        curve: The evaluations so far; None if there are none.
        epoch: Epochs run at the evaluation; less than at the latest one only by rounding.
        metric: Its finite value.
        maximize: Whether higher is better.
    """
    epoch, metric = _stored(epoch), _stored(metric)
    if curve is None:
        return MetricCurve((epoch,), (metric,)) if epoch > 0 else None
    epochs, metrics = curve.epochs, curve.metrics
    if epoch > epochs[-1]:
        return _thinned(MetricCurve((*epochs, epoch), (*metrics, metric)), maximize=maximize)
    best = max if maximize else min
    return MetricCurve(epochs, (*metrics[:-1], best(metrics[-1], metric)))


def _thinned(curve: MetricCurve, *, maximize: bool) -> MetricCurve:
    epochs, metrics = curve.epochs, curve.metrics
    if len(epochs) <= MAX_CURVE_POINTS:
        return curve
    best = metrics.index((max if maximize else min)(metrics))
    inner = (index for index in range(1, len(epochs) - 1) if index != best)
    dropped = min(inner, key=lambda index: epochs[index + 1] - epochs[index - 1])
    return MetricCurve(epochs[:dropped] + epochs[dropped + 1 :], metrics[:dropped] + metrics[dropped + 1 :])


def _stored(number: float) -> float:
    """The number as it is read again from its wire form, so that epochs still rise then."""
    return float(format_decimal(to_decimal(number)))
