"""Whether an attempt has ended, and its result, from its workload's state and its reports."""

import shlex
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from wattloop.printable import quoted
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.field_types import format_time
from wattloop_operator.api.objective import Direction, Target
from wattloop_operator.api.reporting_source import Reporting, ReportingSource
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.quantities import epochs_text, metric_text
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase, WorkloadState
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.domain.training_output import OutputReader, OutputReading
from wattloop_operator.domain.unread_lines import LINE_REMEDY
from wattloop_operator.reconcile.attempt.attempt_conditions import unhealthy_devices_in_status
from wattloop_operator.reconcile.attempt.early_stop import DIVERGED, divergence_reason, is_at_plateau
from wattloop_operator.reconcile.attempt.ended_ranks import first_failed, has_ended_by_report, has_silent_rank
from wattloop_operator.reconcile.attempt.progress_deadline import hang_message, hung_at
from wattloop_operator.reconcile.attempt.start_failure import (
    BLAMES_NONE,
    failure_place,
    has_trained,
    quoted_output,
    repeated_failure,
    script_error,
    start_failure,
)

GRACE_SECONDS = 60
# Of a controller, to say that its workload has ended: after an API server that was away it lists again up to a minute
# late, and a workload that is deleted earlier has no log any more.
CONTROLLER_GRACE_SECONDS = 300
MAX_MESSAGE_CHARACTERS = 4096
# What to do if the metric is missing.
_REMEDIES = {
    ReportingSource.PUSH: "call run.report(metric=…) after each evaluation",
    ReportingSource.LOGS: f"print a line {LINE_REMEDY}",
    ReportingSource.FILE: "write a row with {metric} into {path} after each evaluation, and flush it; wattloop logs "
    "{file} --source File --metric {name} shows what is read",
    ReportingSource.TERMINATION_MESSAGE: "write a line such as epoch=12 {metric}=0.5 into terminationMessagePath "
    "(/dev/termination-log) before the end",
    ReportingSource.KUBEFLOW_TRAINER: "log it after each evaluation, or set spec.objective.target.metric to the name "
    "that the script logs; Hugging Face's Trainer puts eval_ before the names of compute_metrics",
}


@dataclass(frozen=True)
class Ended:
    """The attempt has ended or is abandoned. Whatever still runs of its workload must be ended.

    Attributes:
        message: What happened and, if one is needed, the next step.
        place: Where it failed; empty if that is not known.
    """

    result: Result
    message: str
    place: str = ""


@dataclass(frozen=True)
class Ongoing:
    """The attempt continues. `until` is when time alone may end it."""

    until: datetime | None = None


def assess(
    recurrence: TrainingAttempt,
    workload: WorkloadState | None,
    *,
    deadline_seconds: int | None,
    ending_since: datetime | None,
    observed_since: datetime | None = None,
    places_before: Collection[str] = (),
    now: datetime,
) -> Ended | Ongoing:
    """Find out whether an attempt has ended.

    `recurrence`: the attempt. It was started and has no result yet. `workload`: the state of its workload; None if
    there is none any more. `observed_since`: since when the operator observes the attempt without interruption; None:
    always.
    """
    if workload is None:
        return _without_workload(recurrence)
    if not workload.owned:
        text = f"an object named {workload.name} exists that Wattloop did not create; delete or rename it"
        return Ended(Result.NAME_CONFLICT, text)
    if workload.phase is WorkloadPhase.SUCCEEDED:
        return _unseen_end(recurrence, workload, observed_since) or _succeeded(recurrence, workload)
    if workload.phase is WorkloadPhase.FAILED:
        return _failed(recurrence, workload, places_before, now)
    started_at = workload.started_at or recurrence.status.start_time
    if workload.suspended and started_at is not None:
        return _suspended(recurrence, workload)
    deadline = None
    if deadline_seconds is not None and started_at is not None:
        deadline = started_at + timedelta(seconds=deadline_seconds)
    grace_seconds = CONTROLLER_GRACE_SECONDS if workload.pods_ended else GRACE_SECONDS
    grace_end = None if ending_since is None else ending_since + timedelta(seconds=grace_seconds)
    hang = hung_at(recurrence, workload, observed_since)
    return _running(recurrence, workload, deadline=deadline, grace_end=grace_end, hang=hang, now=now)


def _without_workload(recurrence: TrainingAttempt) -> Ended:
    if recurrence.progress.reached or recurrence.progress.finished or recurrence.must_end:
        return _from_reports(recurrence)
    return Ended(Result.CANCELLED, "its workload was deleted before it ended; it is not started again")


def _unseen_end(recurrence: TrainingAttempt, workload: WorkloadState, observed_since: datetime | None) -> Ended | None:
    """The result of a training that ended while reports could not be received; None of any other one.

    The client's last report says that nothing follows; what was left of it in a pod is merged by now. Without it, and
    without an end by what was reported before, how far the training came is not known.
    """
    ended_at, reporting, progress = workload.ended_at, recurrence.spec.reporting, recurrence.progress
    if observed_since is None or ended_at is None or ended_at >= observed_since or not reporting.uses_client:
        return None
    is_known = progress.is_ending or has_ended_by_report(progress)
    is_known |= (progress.epoch or 0) >= recurrence.spec.max_epochs
    gone = {pod.uid for pod in recurrence.status.pods} - {pod.uid for pod in workload.pods}
    if is_known and not (gone and has_silent_rank(progress)):
        return None
    lost = "a pod that may have had the last report of a rank is gone" if is_known else "no pod has its last report"
    text = (
        f"it ended at {format_time(ended_at)}, while the operator or its database was away (until "
        f"{format_time(observed_since)}), and {lost}; nothing is learned from it"
    )
    return Ended(Result.DISRUPTED, text)


def _succeeded(recurrence: TrainingAttempt, workload: WorkloadState) -> Ended:
    ended = _from_reports(recurrence)
    if ended.result not in (Result.MISSING_METRIC, Result.EXHAUSTED):
        return ended
    reading = _reading(recurrence, workload)
    if ended.result is Result.EXHAUSTED:
        # The epochs and the metric that were reported are then perhaps those of the training data.
        doubt = "" if reading is None else reading.counted_in_doubt
        return Ended(Result.MISSING_METRIC, _without_metric(recurrence, doubt)) if doubt else ended
    unread = "" if reading is None else reading.unread_at_end
    message = _without_metric(recurrence, unread) if unread else ended.message
    if unread and workload.log:
        log, name = shlex.quote(workload.log), shlex.quote(recurrence.spec.target.metric)
        message += f"; wattloop logs {log} --metric {name} shows what was passed over, and patterns that would read it"
    return Ended(ended.result, f"{message}{_read_by_logs(recurrence, workload)}{_output_of(workload)}")


def _failed(
    recurrence: TrainingAttempt, workload: WorkloadState, places_before: Collection[str], now: datetime
) -> Ended:
    progress = recurrence.progress
    if progress.reached or progress.stop_requested or progress.diverged:
        return _from_reports(recurrence)
    if workload.failure is Failure.DISRUPTED:
        return Ended(Result.DISRUPTED, f"ended from outside: {workload.message}; nothing is learned from it")
    if workload.failure is Failure.DEADLINE:
        return Ended(Result.DEADLINE_EXCEEDED, workload.message)
    unhealthy = unhealthy_devices_in_status(recurrence)
    if unhealthy:
        # A broken device must not count against the batch size.
        return Ended(Result.DISRUPTED, f"{unhealthy}; {workload.message}; nothing is learned from it")
    return _failed_by_itself(recurrence, workload, places_before, now)


def _failed_by_itself(
    recurrence: TrainingAttempt, workload: WorkloadState, places_before: Collection[str], now: datetime
) -> Ended:
    started, ended = workload.started_at or recurrence.status.start_time, workload.ended_at or now
    progress = recurrence.progress
    place = failure_place(progress, workload, started, ended)
    repeated = repeated_failure(place) if place in places_before else ""
    mistake = start_failure(progress, workload, started, ended)
    if mistake or (repeated and not has_trained(progress)):
        mistake = mistake or repeated
        text = f"it failed at its start: {workload.message or 'its process died'}; {mistake}; {BLAMES_NONE}"
        return Ended(Result.START_FAILED, f"{text}{_output_of(workload)}", place)
    error = script_error(progress, workload) or repeated
    if error:
        text = f"it failed by its script: {workload.message or 'its process died'}; {error}; {BLAMES_NONE}"
        return Ended(Result.SCRIPT_ERROR, f"{text}{_output_of(workload)}", place)
    causes = (first_failed(progress, workload), workload.message or "its process died")
    text = f"batch size {recurrence.spec.batch_size}: {'; '.join(filter(None, causes))}"
    return Ended(Result.CRASHED, f"{text}{_output_of(workload)}", place)


def _suspended(recurrence: TrainingAttempt, workload: WorkloadState) -> Ended:
    """The result of a training whose pods were taken from it by a queue, which preempts in this way, or by a user."""
    if recurrence.progress.reached or recurrence.progress.stop_requested:
        return _from_reports(recurrence)
    return Ended(Result.DISRUPTED, f"it had started, and now {workload.message}; nothing is learned from it")


def _reading(recurrence: TrainingAttempt, workload: WorkloadState) -> OutputReading | None:
    reporting = recurrence.spec.reporting
    if reporting.source is not ReportingSource.LOGS:
        return None
    reader = OutputReader(reporting, recurrence.spec.target, max_epochs=recurrence.spec.max_epochs)
    for line in workload.output.splitlines():
        reader.read(line.encode())
    return reader.reading


def _read_by_logs(recurrence: TrainingAttempt, workload: WorkloadState) -> str:
    """The next step of a script that prints the metric and does not report it; empty for any other script."""
    target = recurrence.spec.target
    if recurrence.spec.reporting.source is not ReportingSource.PUSH:
        return ""
    reader = OutputReader(Reporting(source=ReportingSource.LOGS), target)
    found = any(reader.read(line.encode()) for line in workload.output.splitlines())
    if not found and reader.at_end() is None:
        return ""
    return f"; its output has {target.metric}: set spec.reporting.source to Logs, and it is read from there"


def _output_of(workload: WorkloadState) -> str:
    lines = quoted_output(workload.output)
    quoted = f". The last lines of its output:{lines}" if lines else ""
    return f"{f'; see {workload.log}' if workload.log else ''}{quoted}"


def _hung(recurrence: TrainingAttempt, workload: WorkloadState) -> Ended:
    message = hang_message(recurrence, workload)
    if recurrence.progress.is_ending:
        ended = _from_reports(recurrence)
        return Ended(ended.result, f"{ended.message}; {message}")
    unhealthy = workload.unhealthy or unhealthy_devices_in_status(recurrence)
    if unhealthy:
        return Ended(Result.DISRUPTED, f"{unhealthy}; {message}; nothing is learned from it")
    return Ended(Result.HUNG, f"batch size {recurrence.spec.batch_size}: {message}")


def _running(
    recurrence: TrainingAttempt,
    workload: WorkloadState,
    *,
    deadline: datetime | None,
    grace_end: datetime | None,
    hang: datetime | None,
    now: datetime,
) -> Ended | Ongoing:
    if deadline is not None and now >= deadline:
        epoch = f"its last report was for epoch {recurrence.progress.epoch}"
        report = "it never reported a metric" if recurrence.progress.metric is None else epoch
        return Ended(Result.DEADLINE_EXCEEDED, f"still running at activeDeadlineSeconds; {report}")
    if grace_end is not None and now >= grace_end:
        ended = _from_reports(recurrence)
        late = f"its process did not end within {GRACE_SECONDS} s"
        if workload.pods_ended:
            late = (
                f"its pods ended, but not its {workload.kind} within {CONTROLLER_GRACE_SECONDS} s; see its controller"
            )
        return Ended(ended.result, f"{ended.message}; {late}")
    if hang is not None and now >= hang:
        return _hung(recurrence, workload)
    return Ongoing(min((end for end in (deadline, grace_end, hang) if end is not None), default=None))


def _from_reports(recurrence: TrainingAttempt) -> Ended:
    """The result of a process that ended by itself. Reaching the target counts, at any cost and time."""
    target = recurrence.spec.target
    progress = recurrence.progress
    if progress.reached:
        text = f"{target.metric} reached {_metric_text(progress, target)} after {epochs_text(progress.epoch or 0)}"
        return Ended(Result.REACHED, text)
    # One that ran all its epochs before it could be stopped is a whole run.
    is_whole = (progress.epoch or 0) >= recurrence.spec.max_epochs
    if progress.diverged or (progress.stop_requested and not is_whole):
        told = progress.stop_reason
        if progress.diverged:
            # It may have been asked to stop for another reason before, or not at all, while reports were lost.
            reason = "" if told.startswith(DIVERGED) else divergence_reason(recurrence, progress)
            return Ended(Result.DIVERGED, "; before, ".join(filter(None, (reason, told))))
        result = Result.PLATEAUED if is_at_plateau(progress) else Result.STOPPED
        return Ended(result, told)
    if progress.metric is None:
        reporting = recurrence.spec.reporting
        # Which file the variables in a path made it is known to the process alone.
        path = reporting.path or ""
        file, name = "FILE" if "$(" in path else shlex.quote(path), shlex.quote(target.metric)
        remedy = _REMEDIES[reporting.source].format(metric=target.metric, path=path, file=file, name=name)
        if reporting.pattern is not None:
            remedy = f"no line matched spec.reporting.pattern {quoted(reporting.pattern)} with a number; {remedy}"
        if progress.stop_requested:
            remedy = f"none came within objective.maxEpochs, {epochs_text(recurrence.spec.max_epochs)}; {remedy}"
        return Ended(Result.MISSING_METRIC, _without_metric(recurrence, remedy))
    return Ended(Result.EXHAUSTED, _missed_text(recurrence))


def _missed_text(recurrence: TrainingAttempt) -> str:
    progress, target, most = recurrence.progress, recurrence.spec.target, recurrence.spec.max_epochs
    epochs = progress.epoch or 0
    metric, threshold = _metric_text(progress, target), f"the target {target.threshold}"
    if progress.metric is not None and target.run_target.reached_by(float(progress.metric)):
        missed = f"{threshold} counts after {target.consecutive_evaluations} evaluations in a row"
    else:
        missed = f"{'below' if target.direction is Direction.MAXIMIZE else 'above'} {threshold}"
    if epochs < most:
        own = f"the script ended the training by itself after {epochs_text(epochs)} of at most {most}"
        return f"{own}, at {target.metric} {metric}, {missed}"
    return f"{target.metric} got to {metric} after {epochs_text(epochs)}, {missed}"


def _without_metric(recurrence: TrainingAttempt, remedy: str) -> str:
    return f"ended without {recurrence.spec.target.metric}: {remedy}; nothing is learned from it"


def _metric_text(progress: Progress, target: Target) -> str:
    """The latest metric in four significant digits; in all if the rounded one is on another side of the threshold."""
    if progress.metric is None:
        return "an unknown value"
    exact = float(progress.metric)
    rounded = metric_text(exact)
    same_side = target.run_target.reached_by(float(rounded)) == target.run_target.reached_by(exact)
    return rounded if same_side else f"{progress.metric}"
