"""The state of an attempt: what its training has reported, and how it ended."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from wattloop.wire.training_messages import (
    GPU_UUID_PATTERN,
    MAX_COUNTER_CHARACTERS,
    MAX_GPU_UUID_CHARACTERS,
    MAX_PROCESS_CHARACTERS,
    MAX_RANKS,
    MAX_SCHEDULED_LIMITS,
    MAX_UUID_CHARACTERS,
)
from wattloop_operator.api.curve_field import CurveField
from wattloop_operator.api.field_types import DecimalString, NonNegativeDecimalString, Time
from wattloop_operator.api.model import ATOMIC, ApiModel
from wattloop_operator.api.model_output import AttemptModel
from wattloop_operator.api.probe_status import ProbesStatus

# As many as pods; together with the readings of 1024 GPUs they fit the maximum size of the progress.
MAX_HEARTBEATS = 256
# The bit masks of ranks are bounded. A run of more processes measures no power limits.
MAX_MEASURING_RANKS = 1024
# Restarts of the processes on one GPU that a late report may still belong to.
MAX_EARLIER_INTERVALS = 4
# As many as pods of an attempt.
MAX_LIMIT_PODS = 256
# A process that is started again more often continues the count of the oldest one.
MAX_PROCESSES = 32


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


class RecentPower(ApiModel):
    """Mean power of one GPU up to a report of its process."""

    power_watts: NonNegativeDecimalString = Field(description="Mean power, in watts.")
    seconds: NonNegativeDecimalString = Field(description="Time over which it is the mean, by the GPU's clock.")
    time: Time = Field(description="Time at which the operator received the later report.")
    start_time_seconds: DecimalString = Field(
        description="Clock of the process when it began, in seconds, which tells it from another process."
    )


class CountedInterval(ApiModel):
    """An interval of one GPU's cumulative energy counter and clock, in which processes of the attempt used the GPU."""

    start_energy_millijoules: int = Field(
        description="Energy counter at the start of the interval, in millijoules.", ge=0
    )
    energy_millijoules: int = Field(description="Energy counter at its latest report, in millijoules.", ge=0)
    start_time_seconds: DecimalString = Field(
        description="Clock of the training process at the start of the interval, in seconds."
    )
    time_seconds: DecimalString = Field(description="Clock of the training process at its latest report, in seconds.")
    uncertainty_millijoules: int | None = Field(
        default=None,
        description="Bound of the error of the energy of the interval, in millijoules, if the GPU has no energy "
        "counter and its power was integrated, or if its counter was reset. Absent if a counter measured the energy.",
        ge=0,
    )
    counter: str = Field(
        default="",
        description="Identifies the boot and the load of the driver that counter and clock count from.",
        max_length=MAX_COUNTER_CHARACTERS,
    )

    @property
    def length_millijoules(self) -> int:
        """Energy of the interval."""
        return self.energy_millijoules - self.start_energy_millijoules

    @property
    def length_seconds(self) -> Decimal:
        """Duration of the interval."""
        return self.time_seconds - self.start_time_seconds


class GpuReadingStatus(CountedInterval):
    """What the processes of an attempt reported of one GPU: the latest interval, and the earlier ones.

    A process that starts again within the attempt begins a new interval. What others used in between is in none.
    """

    uuid: str = Field(
        description="UUID of the GPU.",
        min_length=1,
        max_length=MAX_GPU_UUID_CHARACTERS,
        pattern=f"^({GPU_UUID_PATTERN})$",
    )
    recent: RecentPower | None = Field(
        default=None,
        description="Mean power between the latest two reports of the process; since it began if there is one, or if "
        "reports come within a second. Absent until one of these takes a second.",
    )
    earlier: tuple[CountedInterval, ...] = Field(
        default=(), description="Earlier ones in order.", max_length=MAX_EARLIER_INTERVALS, json_schema_extra=ATOMIC
    )
    oldest: CountedInterval | None = Field(
        default=None, description="The sum of still earlier intervals, as one interval from zero. Absent if none."
    )
    rank: int = Field(default=0, description="Rank of the process that reported the GPU first.", ge=0)
    place: int = Field(
        default=0,
        description="GPUs of one rank with the same number were reported together; those with different numbers one "
        "after the other, as after a move to another node.",
        ge=0,
    )
    devices: int = Field(default=1, description="Number of GPUs in the largest report with this GPU.", ge=1)
    shared: bool | None = Field(
        default=None,
        description="Whether other processes used the GPU in these intervals, so that the energy is an upper bound. "
        "Absent if that is not known.",
    )

    @property
    def _intervals(self) -> tuple[CountedInterval, ...]:
        return (*(() if self.oldest is None else (self.oldest,)), *self.earlier, self)

    @property
    def used_millijoules(self) -> int:
        """Energy of all intervals."""
        return sum(each.length_millijoules for each in self._intervals)

    @property
    def used_seconds(self) -> Decimal:
        """Duration of all intervals."""
        return sum((each.length_seconds for each in self._intervals), Decimal(0))

    @property
    def total_uncertainty_millijoules(self) -> int | None:
        """Bound of the error of the energy of all intervals; None if a counter measured it."""
        bounds = [each.uncertainty_millijoules for each in self._intervals if each.uncertainty_millijoules is not None]
        return sum(bounds) if bounds else None


class ProfilePoint(ApiModel):
    """Measurements at one power limit, of all ranks together."""

    power_limit_watts: int = Field(description="Power limit of each GPU, in watts.", ge=1)
    energy_joules: NonNegativeDecimalString = Field(description="Energy of all GPUs at this power limit, in joules.")
    time_seconds: NonNegativeDecimalString = Field(
        description="Time at this power limit, in seconds: that of the slowest rank."
    )
    epochs: NonNegativeDecimalString = Field(
        description="Epochs run at this power limit, fractions included. 1 if there are several ranks, whose "
        "measurements are added up for one epoch."
    )
    ranks: str = Field(
        default="1",
        description="Ranks whose measurements are included, as a bit mask in hexadecimal: the last bit is rank 0.",
        max_length=MAX_MEASURING_RANKS // 4,
        pattern="^[0-9a-f]+$",
    )


class ReportingProcess(ApiModel):
    """What one process of rank 0 has reported of its training. Started again, it is another process."""

    id: str = Field(
        description="Identifies the process, as it reports itself; of a training whose log is read, its container.",
        max_length=MAX_PROCESS_CHARACTERS,
    )
    sequence: int = Field(
        default=0, description="Number of its latest report. Reports with a lower number are ignored.", ge=0
    )
    epoch: NonNegativeDecimalString = Field(default=Decimal(0), description="Epochs run by it.")
    evaluations: int = Field(default=0, description="Number of its evaluations of the metric.", ge=0)
    consecutive_reached: int = Field(
        default=0,
        description="Number of its consecutive evaluations, up to the latest one, that met the threshold.",
        ge=0,
    )


class LatestReport(ApiModel):
    """The latest report of one process."""

    rank: int = Field(description="Rank of the process.", ge=0)
    time: Time = Field(description="Time at which the operator received the report.")
    pod_uid: str = Field(
        default="",
        description="UID of the pod that sent the report, by its token. Empty if no pod sent it.",
        max_length=MAX_UUID_CHARACTERS,
    )
    asked_epoch: int | None = Field(
        default=None,
        description="Epoch after which the process asked last whether to go on. It repeats the question while it waits "
        "for rank 0, which shows no progress and does not change the time.",
        ge=0,
    )


class FailedRank(ApiModel):
    """The process that was the first to report that it failed."""

    rank: int = Field(description="Its rank.", ge=0)
    failure: str = Field(description="Type of the exception that ended it.", max_length=64)
    consequence: bool = Field(
        default=False,
        description="Whether that exception follows from another process: a lost connection to it, or a signal of the "
        "launcher.",
    )


class EpochMark(ApiModel):
    """Energy and time of the attempt's GPUs when the training had run a number of epochs."""

    epoch: NonNegativeDecimalString = Field(description="Epochs run.")
    energy_joules: NonNegativeDecimalString = Field(
        description="Energy of all GPUs since the attempt started, in joules. Agents measure from when the GPUs were "
        "assigned to the pods."
    )
    time_seconds: NonNegativeDecimalString = Field(description="Time since then, in seconds.")


class AgentReadings(ApiModel):
    """What the node agents measured of an attempt whose processes report no GPUs."""

    devices: int = Field(description="Number of GPUs.", ge=1)
    gpu_product: str = Field(default="", description="Product name of the GPUs.", max_length=128)
    max_power_limit_watts: int | None = Field(
        default=None,
        description="Sum of the maximum power limits of the GPUs, in watts. Absent if it is not known.",
        ge=1,
    )
    first: EpochMark = Field(
        description="At the training's first report for which the agents had measured all GPUs. What was used before, "
        "such as the start of the container, counts for no epoch."
    )
    latest: EpochMark = Field(description="At the training's latest report of a new epoch.")


class PodPowerLimit(ApiModel):
    """What a node agent did about the power limit that the operator orders for one pod."""

    uid: str = Field(description="UID of the pod.", min_length=1, max_length=MAX_UUID_CHARACTERS)
    min_watts: int | None = Field(
        default=None,
        description="Lowest limit that the pod may request, in watts. Absent if it may request none.",
        ge=0,
    )
    max_watts: int | None = Field(
        default=None,
        description="Highest limit that the pod may request, in watts. Absent if it may request none.",
        ge=0,
    )
    held_watts: int | None = Field(
        default=None, description="Limit held on all GPUs of the pod, in watts. Absent if none is held.", ge=1
    )
    held_since: Time | None = Field(default=None, description="Time since which it is held.")


class LimitWindow(ApiModel):
    """The measurement of a power limit that goes on."""

    power_limit_watts: int = Field(description="Power limit of each GPU, in watts.", ge=1)
    start: EpochMark = Field(description="At the first report of an epoch since which the limit is held on all GPUs.")


class AgentLimits(ApiModel):
    """The power limits that the operator orders the node agents to hold for the attempt's pods."""

    pods: Annotated[tuple[PodPowerLimit, ...], Field(max_length=MAX_LIMIT_PODS, json_schema_extra=ATOMIC)] = Field(
        default=(), description="What the agents did, by pod."
    )
    window: LimitWindow | None = Field(
        default=None, description="The measurement that goes on. Absent unless a power limit is measured."
    )


class LimitScheduleStatus(ApiModel):
    """The power limits that all ranks measure in the same steps, one limit after another."""

    after_epoch: int = Field(description="Epoch after which the first limit begins.", ge=1)
    steps: int = Field(description="Number of optimizer steps of each limit, after one step to settle.", ge=1)
    limits_watts: Annotated[
        tuple[int, ...], Field(min_length=1, max_length=MAX_SCHEDULED_LIMITS, json_schema_extra=ATOMIC)
    ] = Field(description="Power limits of each GPU in their order, in watts.")
    choice_epoch: int | None = Field(
        default=None,
        description="Epoch after which all ranks hold the limit that they choose from the sums of their measurements. "
        "Absent before all ranks have measured.",
        ge=1,
    )


class FinalMetricPrediction(ApiModel):
    """The best metric that the attempt is predicted to have after all its epochs."""

    metric: DecimalString = Field(description="The prediction.")
    low: DecimalString = Field(description="Lower bound of its central 90 % interval.")
    high: DecimalString = Field(description="Upper bound of that interval.")
    reach_percent: NonNegativeDecimalString = Field(
        description="Probability that the attempt reaches its target, in percent."
    )
    plateau: bool = Field(
        default=False,
        description="Whether the attempt is at its plateau, below the target. It is stopped then.",
    )


class Progress(ApiModel):
    """What the attempt has reported so far."""

    processes: Annotated[tuple[ReportingProcess, ...], Field(max_length=MAX_PROCESSES, json_schema_extra=ATOMIC)] = (
        Field(
            default=(),
            description="Processes of rank 0, in the order of their first reports, whatever any clock shows. Their "
            "epochs add up, and each continues the curve of those before it. If there are more than 32, the oldest "
            "counts for those before it.",
        )
    )
    epoch: NonNegativeDecimalString | None = Field(default=None, description="Epochs run so far, by all processes.")
    metric: DecimalString | None = Field(default=None, description="Latest value of the metric.")
    latest_evaluation: str = Field(
        default="",
        description="Identifies the latest evaluation, if the source of the reports repeats its values.",
        max_length=64,
    )
    curve: CurveField = Field(
        default=None,
        description="Evaluations of the metric by rising epochs. The first, the latest and the best one are always "
        "present; if there are more than 64, others are dropped where they are densest.",
    )
    reached: bool = Field(
        default=False,
        description="Whether the target has been reached: enough consecutive evaluations met the threshold.",
    )
    diverged: bool = Field(
        default=False,
        description="Whether the metric was not finite or, in a trial, moved away from the target. The attempt is "
        "stopped.",
    )
    reviewed_epoch: NonNegativeDecimalString | None = Field(
        default=None,
        description="Epochs run at the latest evaluation of the metric that the policy has reviewed; 0 if there was "
        "none. Absent before the first review, which needs the cost of an epoch. stopCostJoules here then replaces the "
        "one in the spec.",
    )
    stop_cost_joules: NonNegativeDecimalString | None = Field(
        default=None,
        description="Cost at which a reviewed attempt is stopped, in joules, by the latest review. Absent disables "
        "cost-based stopping.",
    )
    predicted_epoch: NonNegativeDecimalString | None = Field(
        default=None,
        description="Epochs run at the latest evaluation of the metric from which the final metric was predicted, or "
        "found to be not known. Absent before the eighth evaluation.",
    )
    final_metric: FinalMetricPrediction | None = Field(
        default=None,
        description="Prediction of the final metric at predictedEpoch. Absent while it is not known: "
        "while no attempt has run all its epochs, once an attempt of the job has reached the target, and before the "
        "eighth evaluation.",
    )
    stop_requested: bool = Field(default=False, description="Whether the training was asked to stop.")
    stop_reason: str = Field(default="", description="Reason for the request to stop.", max_length=512)
    published: AttemptModel | None = Field(
        default=None, description="The model that the attempt has published. Absent if none."
    )
    finished: bool = Field(default=False, description="Whether the training reported that it has finished.")
    batch_size: int | None = Field(
        default=None,
        description="Samples of an optimizer step over all devices: the decision's batch size, rounded down to a "
        "multiple of the number of devices, to one sample for each device at least. Absent if the training does not "
        "report it.",
        ge=1,
    )
    ended_ranks: str = Field(
        default="0",
        description="Ranks that reported their end, also by an exception, as a bit mask in hexadecimal: the last bit "
        "is rank 0. If others are missing after a failure, they were probably killed.",
        max_length=MAX_MEASURING_RANKS // 4,
        pattern="^[0-9a-f]+$",
    )
    first_failure: FailedRank | None = Field(
        default=None,
        description="The process that was the first to report that it failed. Absent if none did since the processes "
        "were started.",
    )
    decided_epoch: int = Field(
        default=0,
        description="Latest epoch after which the ranks were told to go on. Not used by a training of one process.",
        ge=0,
    )
    stop_epoch: int | None = Field(
        default=None,
        description="Epoch after which all ranks stop, by the request to stop or at the target. It never changes. "
        "Absent if none is decided.",
        ge=1,
    )
    limit_schedule: LimitScheduleStatus | None = Field(
        default=None,
        description="Schedule by which ranks without a process group of PyTorch measure power limits. It was decided "
        "with the verdict on its epoch and never changes. Absent if none is decided.",
    )
    ranks: int = Field(
        default=1, description="Number of processes of the training, as far as reports tell.", ge=1, le=MAX_RANKS
    )
    gpus: Annotated[tuple[GpuReadingStatus, ...], Field(max_length=1024, json_schema_extra=ATOMIC)] = Field(
        default=(), description="Energy counters of all GPUs of the attempt."
    )
    gpu_product: str = Field(default="", description="Product name of the GPUs.", max_length=128)
    max_power_limit_watts: int | None = Field(
        default=None, description="Sum of the maximum power limits of all GPUs of the attempt, in watts.", ge=1
    )
    power_limit_watts: int | None = Field(
        default=None,
        description="Power limit currently held on each GPU, in watts. Absent if none is held.",
        ge=1,
    )
    power_limit_refusal: str = Field(
        default="", description="Reason why the power limit requested last is not held.", max_length=512
    )
    profile: Annotated[tuple[ProfilePoint, ...], Field(max_length=64, json_schema_extra=ATOMIC)] = Field(
        default=(), description="Measurements at each power limit, if power limits were measured."
    )
    probes: ProbesStatus | None = Field(
        default=None, description="What the training's probes have used and chosen. Absent if there was no trial."
    )
    last_report_time: Time | None = Field(
        default=None,
        description="Time of the latest report of any process. Absent without spec.progressDeadlineSeconds.",
    )
    heartbeats: Annotated[tuple[LatestReport, ...], Field(max_length=MAX_HEARTBEATS, json_schema_extra=ATOMIC)] = Field(
        default=(),
        description="Time of the latest report of each process, by rank. Ranks of 256 and more are not listed. Empty "
        "without spec.progressDeadlineSeconds.",
    )
    first_epoch: EpochMark | None = Field(
        default=None,
        description="By the processes' counters at the first report of a complete epoch. The start of the training "
        "falls into that epoch, so later ones give the cost of an epoch. Absent before, or without GPUs.",
    )
    agents: AgentReadings | None = Field(
        default=None,
        description="Measurements of the node agents. Absent if the processes report their GPUs, or if the agents have "
        "not measured all GPUs yet.",
    )
    agent_limits: AgentLimits | None = Field(
        default=None,
        description="Power limits that the node agents hold on the operator's order. Absent if the processes report "
        "their GPUs, and so request limits themselves, or if no limit was ordered.",
    )

    @property
    def process(self) -> ReportingProcess:
        """The latest process of rank 0; one without a name before the first report."""
        return self.processes[-1] if self.processes else ReportingProcess(id="")

    @property
    def is_ending(self) -> bool:
        """Whether the training has reached its target, was asked to stop, or has finished."""
        return self.reached or self.stop_requested or self.finished
