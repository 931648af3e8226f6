"""TrainingRecurrence: one attempt of a recurrence, with its immutable decision and its measured cost."""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from wattloop_operator.api.attempt_state import ProgressSummary, Result
from wattloop_operator.api.batch_size import KIND, DecisionKind, ParametersByName, PolicyName
from wattloop_operator.api.field_types import BatchSizeNumber, DecimalString, NonNegativeDecimalString, Time
from wattloop_operator.api.meta import Conditions, ObjectMeta
from wattloop_operator.api.model import (
    API_VERSION,
    UNPUBLISHED_DEFAULT,
    ApiModel,
    PrinterColumn,
    Resource,
    Rule,
    Scope,
    list_map,
)
from wattloop_operator.api.model_output import MAX_OUTPUT_DIRECTORY_CHARACTERS, OUTPUT_DIRECTORY_PATTERN
from wattloop_operator.api.objective import Epochs, Percentage, ProgressDeadline, Target
from wattloop_operator.api.power_fields import AppliedFrequencyPlan, Watts
from wattloop_operator.api.recurring_training_job_status import MoneyText
from wattloop_operator.api.reporting_source import Reporting

# No attempt is expected to have more; of more, the first ones are stored.
MAX_PODS = 256
# The algorithms that the OCI image specification registers for digests of content.
IMAGE_DIGEST_PATTERN = r"^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$"
MAX_IMAGE_DIGEST_CHARACTERS = 135


class Attribution(StrEnum):
    """Whether the measured energy belongs to the attempt alone."""

    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"
    UNKNOWN = "Unknown"


class EnergySource(StrEnum):
    """The source of the energy and the duration."""

    PROCESS = "Process"
    AGENT = "Agent"


class JobReference(ApiModel):
    """A reference to the RecurringTrainingJob of an attempt."""

    name: str = Field(description="Name of the RecurringTrainingJob.", min_length=1, max_length=63)
    uid: str = Field(description="UID of the RecurringTrainingJob.", min_length=1, max_length=64)


class DecisionRecord(ApiModel):
    """The decision for a batch size, with all that is needed to reproduce it."""

    policy: PolicyName = Field(description="Policy that made the decision.")
    kind: DecisionKind = KIND
    reason: str = Field(description="Why the policy chose the batch size.", max_length=1024)
    seed: str = Field(description="Seed of the random draws, a decimal integer.", max_length=20, pattern=r"^[0-9]+$")
    digest: str = Field(description="Digest of the observations that the decision is based on.", max_length=128)
    last_attempt: bool = Field(
        default=False,
        description="Whether no retry follows if the attempt misses the target, because no batch size is expected to "
        "reach it. A crash or a disruption is retried nevertheless.",
    )


class TrainingRecurrenceSpec(ApiModel):
    """The decision, which is immutable."""

    rules = (
        Rule(
            "self == oldSelf",
            "an unchanged spec, since a decision is immutable; to run with another decision, change the "
            "RecurringTrainingJob and its runRequest",
        ),
    )

    job_ref: JobReference = Field(description="The RecurringTrainingJob of the attempt.")
    index: int = Field(description="Index of the recurrence, from 0.", ge=0)
    attempt: int = Field(description="Index of the attempt within the recurrence, from 0.", ge=0)
    slot: str = Field(
        description="Scheduled time or run request that the recurrence was started for.", min_length=1, max_length=160
    )
    scheduled_time: Time = Field(description="Time at which the recurrence was due.")
    batch_size: BatchSizeNumber = Field(description="Batch size of the training.")
    power_limit_watts: Watts | None = Field(
        default=None, description="Power limit to hold on each GPU, in watts. Absent if limits are measured or not set."
    )
    profile_power_limits: bool = Field(
        default=False, description="Whether the attempt measures power limits and then holds the best one."
    )
    max_epochs: Epochs = Field(
        description="Number of epochs after which the attempt ends even if it has not reached the target."
    )
    target: Target = Field(description="Target, copied from the job's spec.")
    learning_rate_scale: NonNegativeDecimalString = Field(
        description="Factor of the learning rate, relative to the one at the default batch size."
    )
    stop_cost_joules: NonNegativeDecimalString | None = Field(
        default=None,
        description="Cost at which the attempt is stopped, in joules. Absent disables cost-based stopping.",
    )
    energy_weight_percent: Percentage = Field(
        description="Weight of energy in the cost, copied from the job's spec, in percent."
    )
    parameters: ParametersByName = Field(
        default_factory=dict, description="Chosen values of the further parameters by name. Absent: the job has none."
    )
    reporting: Reporting = Field(
        default=Reporting(),
        description="How Wattloop receives the metric, copied from the job's spec. Absent: its default.",
        json_schema_extra=UNPUBLISHED_DEFAULT,
    )
    template_digest: str | None = Field(
        default=None,
        description="Digest of the job's spec.template, and of the training runtime that it refers to, that the "
        "attempt was decided with; another one for a warm start. Crashes count only while the next attempt has this "
        "digest. Absent if an older version decided the attempt.",
        max_length=64,
        pattern=r"^[0-9a-f]+$",
    )
    progress_deadline_seconds: ProgressDeadline | None = Field(
        default=None,
        description="Seconds without a report after which the attempt is ended as hung, copied from the job's spec. "
        "Absent: the attempt may be silent for ever.",
    )
    output_directory: str | None = Field(
        default=None,
        description="Folder or URL of the job's models, copied from the job's spec. Absent: nothing is published.",
        min_length=2,
        max_length=MAX_OUTPUT_DIRECTORY_CHARACTERS,
        pattern=OUTPUT_DIRECTORY_PATTERN,
    )
    warm_start: bool = Field(
        default=False, description="Whether the attempt starts from the model that is current when it starts."
    )
    decision: DecisionRecord = Field(description="The decision for the batch size.")


class WorkloadReference(ApiModel):
    """A reference to the workload of the attempt, which has the attempt's name."""

    api_version: str = Field(description="API version of the workload.", min_length=1, max_length=317)
    kind: str = Field(description="Kind of the workload.", min_length=1, max_length=63)
    uid: str = Field(default="", description="UID of the workload.", max_length=64)


class Usage(ApiModel):
    """Energy, duration and GPUs of the attempt, and how they were measured."""

    gpu_energy_joules: NonNegativeDecimalString = Field(description="Energy of all GPUs of the attempt, in joules.")
    duration_seconds: NonNegativeDecimalString = Field(description="Duration of the attempt, in seconds.")
    devices: int = Field(default=0, description="Number of GPUs.", ge=0)
    gpu_product: str = Field(default="", description="Product name of the GPUs.", max_length=128)
    attribution: Attribution = Field(
        default=Attribution.UNKNOWN,
        description="Exclusive: the energy belongs to this attempt alone. Shared: others used the GPUs too, so the "
        "policy learns nothing from it. Unknown: this could not be determined.",
    )
    max_power_limit_watts: int | None = Field(
        default=None,
        description="Sum of the maximum power limits of all GPUs, in watts. Absent if it is not known, or if the "
        "training processes reported no GPUs and the node agents did not cover the attempt.",
        ge=1,
    )
    coverage_percent: DecimalString | None = Field(
        default=None, description="Fraction of the duration for which energy was measured, in percent."
    )
    energy_source: EnergySource = Field(
        default=EnergySource.PROCESS,
        description="Source of energy and duration; the more accurate one is used. Process: reports of the training "
        "processes, from the first to the last report. Agent: measurements of the node agents, from the assignment "
        "of GPUs to the pods until their release.",
    )
    uncertainty_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Uncertainty of the energy, in joules. Absent if unknown."
    )


class PodReference(ApiModel):
    """A reference to a pod of the attempt."""

    uid: str = Field(description="UID of the pod.", min_length=1, max_length=64)
    node: str = Field(description="Node that the pod was bound to.", min_length=1, max_length=253)


class TrainingRecurrenceStatus(ApiModel):
    """Observed state of the attempt."""

    conditions: Conditions = ()
    workload_ref: WorkloadReference | None = Field(default=None, description="The workload of the attempt.")
    devices: int = Field(
        default=0,
        description="Number of GPUs that the training containers of the workload request. 0 if the template does not "
        "state it.",
        ge=0,
    )
    pods: Annotated[tuple[PodReference, ...], Field(max_length=MAX_PODS, json_schema_extra=list_map("uid"))] = Field(
        default=(),
        description="Observed pods of the attempt. Energy that a node agent reports for a deleted pod is attributed "
        "by this list.",
    )
    image_digest: str | None = Field(
        default=None,
        description="Digest of the image that the training container ran, of rank 0 if there are several pods. Absent "
        "if it is not known: in local mode, and for workloads whose pods Wattloop does not watch.",
        max_length=MAX_IMAGE_DIGEST_CHARACTERS,
        pattern=IMAGE_DIGEST_PATTERN,
    )
    start_time: Time | None = Field(default=None, description="Time at which the workload started to run.")
    completion_time: Time | None = Field(default=None, description="Time at which the attempt ended.")
    progress: ProgressSummary | None = Field(
        default=None,
        description="How far the attempt is. It is written with the rest of the status, or every 30 s; more often in "
        "its first minutes.",
    )
    frequency_plan: AppliedFrequencyPlan | None = Field(
        default=None,
        description="The frequency plan of the attempt's pipeline. Absent if its ranks do not register as one.",
    )
    usage: Usage | None = Field(
        default=None,
        description="Energy and duration of the attempt. A late report of a node agent changes them; the policy learns "
        "from what was known at the end of the attempt, which the operator's database keeps.",
    )
    cost_joules: NonNegativeDecimalString | None = Field(
        default=None,
        description="Cost of the attempt: w*energy + (1-w)*maxPower*time, in joules. Absent while it is active, and if "
        "its energy or time was not measured.",
    )
    money: MoneyText | None = Field(
        default=None,
        description="Price of the energy: an amount and the ISO 4217 code of its currency. Absent where the "
        "tariff has no price.",
    )
    energy: str = Field(
        default="",
        description='Energy of the GPUs in kWh, rounded, or "unknown"; for the columns of kubectl, as time and metric '
        "are. Empty while the attempt is active.",
        max_length=32,
    )
    time: str = Field(default="", description='Duration in minutes, or "unknown".', max_length=32)
    metric: str = Field(
        default="", description="Last value of the target's metric, with four digits. Empty if none.", max_length=32
    )
    result: Result | None = Field(
        default=None,
        description="Result of the attempt. Absent while it is active. Reached: it reached the target. Stopped: it "
        "became too expensive. Exhausted: it ran all epochs without reaching the target. Plateaued: it was stopped at "
        "its plateau, predicted to end below the target. Crashed: its process failed. StartFailed: it failed before "
        "its first epoch by a mistake in its command, script or files. ScriptError: it failed later by an error "
        "in its script that no batch size causes. Hung: it sent no report for progressDeadlineSeconds. "
        "DeadlineExceeded: it exceeded activeDeadlineSeconds. MissingMetric: it did not report the metric. "
        "Disrupted: the cluster terminated it. Cancelled: a user or concurrencyPolicy Replace cancelled it. "
        "NameConflict: an object that Wattloop did not create has the name of its workload.",
    )
    epochs: NonNegativeDecimalString | None = Field(default=None, description="Number of epochs run.")
    failure_place: str = Field(
        default="",
        description="File, line and type of the exception that ended the attempt, by the end of its output, or the "
        "signal that its program crashed by before its first epoch. A failure of another batch size at the same place "
        "is the fault of neither. Empty if not known.",
        max_length=512,
    )
    message: str = Field(default="", description="Explanation of the result.", max_length=4096)


class TrainingRecurrence(ApiModel):
    """One attempt of a recurrence: an immutable decision and its measured cost. The operator creates it."""

    resource: ClassVar[Resource] = Resource(
        kind="TrainingRecurrence",
        plural="trainingrecurrences",
        singular="trainingrecurrence",
        short_name="trec",
        scope=Scope.NAMESPACED,
        columns=(
            PrinterColumn("Job", ".spec.jobRef.name", "The RecurringTrainingJob", wide=True),
            PrinterColumn("Index", ".spec.index", "Index of the recurrence", "integer"),
            PrinterColumn("Attempt", ".spec.attempt", "Index of the attempt", "integer", wide=True),
            PrinterColumn("Batch", ".spec.batchSize", "Batch size", "integer"),
            PrinterColumn("Limit (W)", ".spec.powerLimitWatts", "Power limit of each GPU, in watts", "integer"),
            PrinterColumn("Plan", ".status.frequencyPlan.name", "FrequencyPlan of the pipeline", wide=True),
            PrinterColumn(
                "Plan saves (%)", ".status.frequencyPlan.savingPercent", "Energy that the plan saves", wide=True
            ),
            PrinterColumn("Why", ".spec.decision.kind", "Kind of the decision"),
            PrinterColumn(
                "State", '.status.conditions[?(@.type=="Running")].reason', "Waiting, Running, or the result"
            ),
            PrinterColumn("Metric", ".status.metric", "Last value of the metric"),
            PrinterColumn("Energy", ".status.energy", "Energy of the GPUs"),
            PrinterColumn("Time", ".status.time", "Duration"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "Time since creation", "date"),
            PrinterColumn(
                "Message",
                '.status.conditions[?(@.type=="Running")].message',
                "What the attempt waits for, or why it ended",
                wide=True,
            ),
        ),
    )

    api_version: Literal["wattloop.dev/v1alpha1"] = API_VERSION
    kind: Literal["TrainingRecurrence"] = "TrainingRecurrence"
    metadata: ObjectMeta = Field(default=ObjectMeta())
    spec: TrainingRecurrenceSpec = Field(description="The decision, which is immutable.")
    status: TrainingRecurrenceStatus = Field(
        default=TrainingRecurrenceStatus(), description="Observed state of the attempt."
    )

    @property
    def order(self) -> tuple[int, int]:
        """Index of the recurrence and of the attempt, by which attempts are ordered."""
        return self.spec.index, self.spec.attempt
