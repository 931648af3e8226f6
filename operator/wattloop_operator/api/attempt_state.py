"""The state of an attempt as a person reads it: how far its training is, and how it ended."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from wattloop_operator.api.curve_field import CurveField
from wattloop_operator.api.field_types import DecimalString, NonNegativeDecimalString, Time
from wattloop_operator.api.model import ATOMIC, ApiModel


class Result(StrEnum):
    """How an attempt ended.

    REACHED: It reached the target.
    STOPPED: It was stopped because it became too expensive.
    EXHAUSTED: It ran all epochs without reaching the target.
    PLATEAUED: It was stopped at its plateau, because its metric was predicted to end below the target.
    DIVERGED: It was stopped because its metric was not finite or, in a trial, moved away from the target.
    CRASHED: Its process failed by itself (an exception, out of memory).
    START_FAILED: It failed before its first epoch by a mistake in its command, script or files; no batch size is
        blamed, and the policy learns nothing from it.
    SCRIPT_ERROR: It failed later by an error in its script that no batch size causes, such as NameError; the policy
        learns nothing from it.
    HUNG: It sent no report for progressDeadlineSeconds and was terminated; counts as a crash.
    DEADLINE_EXCEEDED: It was still running at the active deadline and was terminated.
    MISSING_METRIC: It succeeded without reporting the metric; the policy learns nothing from it.
    DISRUPTED: The cluster terminated it (eviction, lost node); the policy learns nothing from it.
    CANCELLED: A user or the concurrency policy Replace cancelled it; the policy learns nothing from it.
    NAME_CONFLICT: An object that Wattloop did not create has the name of its workload.
    """

    REACHED = "Reached"
    STOPPED = "Stopped"
    EXHAUSTED = "Exhausted"
    PLATEAUED = "Plateaued"
    DIVERGED = "Diverged"
    CRASHED = "Crashed"
    START_FAILED = "StartFailed"
    SCRIPT_ERROR = "ScriptError"
    HUNG = "Hung"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    MISSING_METRIC = "MissingMetric"
    DISRUPTED = "Disrupted"
    CANCELLED = "Cancelled"
    NAME_CONFLICT = "NameConflict"


# Failures that repeat with every batch size until their user has corrected the script, the command or a file.
SCRIPT_FAILURES = frozenset({Result.START_FAILED, Result.SCRIPT_ERROR})


class ProgressSummary(ApiModel):
    """How far an attempt is, of its reports up to `lastReportTime`."""

    epoch: NonNegativeDecimalString | None = Field(default=None, description="Epochs run so far, by all processes.")
    metric: DecimalString | None = Field(default=None, description="Latest value of the metric.")
    curve: CurveField = Field(
        default=None,
        description="Evaluations of the metric, each its epochs and its value, by rising epochs. The first, the latest "
        "and the best one are always present; if there are more than 64, others are dropped where they are densest.",
    )
    final_metric: Annotated[tuple[DecimalString, ...], Field(max_length=3, json_schema_extra=ATOMIC)] = Field(
        default=(),
        description="The best metric that the attempt is predicted to have after all its epochs: lower bound of the "
        "central 90 % interval, prediction, upper bound. Empty while it is not known: while no attempt has run all its "
        "epochs, once an attempt of the job has reached the target, and before the eighth evaluation.",
    )
    power_watts: NonNegativeDecimalString | None = Field(
        default=None,
        description="Mean power of all GPUs between their latest two reports, in watts. Absent if it is not known of "
        "each GPU.",
    )
    power_limit_watts: int | None = Field(
        default=None,
        description="Power limit held on each GPU, in watts, until the attempt ended. Absent if none was.",
        ge=1,
    )
    energy_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Energy of all GPUs so far, in joules. Absent if no GPU was reported."
    )
    time_seconds: NonNegativeDecimalString | None = Field(
        default=None, description="Time in which they used it, in seconds."
    )
    cost_percent: NonNegativeDecimalString | None = Field(
        default=None,
        description="Cost so far, without the trials of probes, in percent of that at which the attempt is stopped. "
        "Absent if it has no such limit, or if its cost is not known.",
    )
    last_report_time: Time | None = Field(
        default=None, description="Time at which the operator received the latest of these reports."
    )
