"""What an attempt has reported so far: the operator's working memory, a row of the store.

A person reads the summary of it that the status of the TrainingRecurrence has.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from wattloop.wire.training_messages import (
    MAX_CHOSEN_CHARACTERS,
    MAX_PROBED_PARAMETERS,
    MAX_PROBLEM_CHARACTERS,
    MAX_PROCESS_CHARACTERS,
    MAX_RANKS,
    MAX_THRESHOLDS,
    MAX_UUID_CHARACTERS,
)
from wattloop_operator.api.curve_field import CurveField
from wattloop_operator.api.field_types import BatchSizeNumber, DecimalString, NonNegativeDecimalString, Time
from wattloop_operator.api.model import ApiModel
from wattloop_operator.api.model_output import AttemptModel
from wattloop_operator.domain.gpu_readings import (
    MAX_MEASURING_RANKS,
    AgentLimits,
    AgentReadings,
    EpochMark,
    GpuIntervals,
    PowerLimitSchedule,
    ProfilePoint,
)


class ProbeOutcome(ApiModel):
    """What the training went on with after a probe."""

    threshold: DecimalString = Field(description="The threshold.")
    batch_size: BatchSizeNumber = Field(description="The global batch size.")
    parameters: Annotated[
        tuple[Annotated[str, Field(max_length=MAX_CHOSEN_CHARACTERS)], ...], Field(max_length=MAX_PROBED_PARAMETERS)
    ] = Field(default=(), description="Values of the probed parameters, NAME=VALUE.")
    power_limit_watts: int | None = Field(
        default=None, ge=1, description="Power limit of each GPU, in watts. Absent if none is held."
    )
    trials: int = Field(default=0, ge=0, description="Number of trials.")
    combinations: int = Field(default=0, ge=0, description="Number of combinations of the grid.")


class ProbeUsage(ApiModel):
    """What trials have used. It is part of the attempt's usage and cost, and no policy learns from it."""

    trials: int = Field(default=0, ge=0, description="Number of trials.")
    energy_joules: NonNegativeDecimalString = Field(description="Their energy, in joules.")
    time_seconds: NonNegativeDecimalString = Field(description="Their time, in seconds.")


class ProbeProgress(ProbeUsage):
    """What the probes of an attempt have used and chosen."""

    choices: Annotated[tuple[ProbeOutcome, ...], Field(max_length=2 * MAX_THRESHOLDS)] = Field(
        default=(), description="The choice of each probe that ended, in the order of time."
    )
    problem: str = Field(
        default="",
        description="What limited the latest probe: trials that its bounds left out, limits that may not be held, or "
        "energies that are uncertain or not measured. Empty if nothing did.",
        max_length=MAX_PROBLEM_CHARACTERS,
    )
    earlier: ProbeUsage | None = Field(
        default=None,
        description="What trials of earlier processes of the attempt have used, which is included. Absent if the "
        "reporting process is the first that probes.",
    )


# As many as pods; together with the readings of 1024 GPUs they fit the maximum size of the progress.
MAX_HEARTBEATS = 256
# A process that is started again more often continues the count of the oldest one.
MAX_PROCESSES = 32


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
    counts_from_0: bool = Field(
        default=False, description="Whether its output has shown that its first epoch is epoch 0."
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


class FinalMetricPrediction(ApiModel):
    """The best metric that the attempt is predicted to have after all its epochs."""

    metric: DecimalString = Field(description="The prediction.")
    low: DecimalString = Field(description="Lower bound of its central 90 % interval.")
    high: DecimalString = Field(description="Upper bound of that interval.")
    reach_percent: NonNegativeDecimalString = Field(
        description="Probability that the attempt reaches its target, in percent."
    )
    plateau: bool = Field(
        default=False, description="Whether the attempt is at its plateau, below the target. It is stopped then."
    )


class Progress(ApiModel):
    """What the attempt has reported so far."""

    processes: Annotated[tuple[ReportingProcess, ...], Field(max_length=MAX_PROCESSES)] = Field(
        default=(),
        description="Processes of rank 0, in the order of their first reports, whatever any clock shows. Their "
        "epochs add up, and each continues the curve of those before it. If there are more than 32, the oldest "
        "counts for those before it.",
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
    limit_schedule: PowerLimitSchedule | None = Field(
        default=None,
        description="Schedule by which ranks without a process group of PyTorch measure power limits. It was decided "
        "with the verdict on its epoch and never changes. Absent if none is decided.",
    )
    ranks: int = Field(
        default=1, description="Number of processes of the training, as far as reports tell.", ge=1, le=MAX_RANKS
    )
    gpus: Annotated[tuple[GpuIntervals, ...], Field(max_length=1024)] = Field(
        default=(), description="Energy counters of all GPUs of the attempt."
    )
    gpu_product: str = Field(default="", description="Product name of the GPUs.", max_length=128)
    max_power_limit_watts: int | None = Field(
        default=None, description="Sum of the maximum power limits of all GPUs of the attempt, in watts.", ge=1
    )
    power_limit_watts: int | None = Field(
        default=None, description="Power limit currently held on each GPU, in watts. Absent if none is held.", ge=1
    )
    power_limit_refusal: str = Field(
        default="", description="Reason why the power limit requested last is not held.", max_length=512
    )
    profile: Annotated[tuple[ProfilePoint, ...], Field(max_length=64)] = Field(
        default=(), description="Measurements at each power limit, if power limits were measured."
    )
    probes: ProbeProgress | None = Field(
        default=None, description="What the training's probes have used and chosen. Absent if there was no trial."
    )
    last_report_time: Time | None = Field(
        default=None,
        description="Time of the latest report of any process. Absent without spec.progressDeadlineSeconds.",
    )
    heartbeats: Annotated[tuple[LatestReport, ...], Field(max_length=MAX_HEARTBEATS)] = Field(
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
