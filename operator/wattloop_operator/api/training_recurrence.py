"""TrainingRecurrence: one immutable decision and its one measured cost, an object an attempt."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from wattloop_operator.api.attempt import Progress, Result
from wattloop_operator.api.batch_size import BatchSizeNumber, ParameterValue
from wattloop_operator.api.field_types import DecimalString, NonNegativeDecimalString, Time
from wattloop_operator.api.meta import Conditions, ObjectMeta
from wattloop_operator.api.model import ApiModel, Rule, list_map
from wattloop_operator.api.objective import Target
from wattloop_operator.api.policy import PolicyName
from wattloop_operator.api.power import MAX_WATTS
from wattloop_operator.api.recurring_training_job_status import Money
from wattloop_operator.api.resource import API_VERSION, Column, Resource, Scope

# More than any attempt has; of more, the first ones are kept.
MAX_PODS = 256


class DecisionKind(StrEnum):
    """Why a batch size was chosen, in one word."""

    TRIAL = "Trial"
    SAMPLE = "Sample"
    INCUMBENT = "Incumbent"
    PRUNE = "Prune"
    DEFAULT = "Default"


class Attribution(StrEnum):
    """Whose energy the counters show."""

    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"
    UNKNOWN = "Unknown"


class EnergySource(StrEnum):
    """Whose word the energy is."""

    PROCESS = "Process"
    AGENT = "Agent"


class JobReference(ApiModel):
    """The RecurringTrainingJob of an attempt."""

    name: str = Field(description="Its name.", min_length=1, max_length=63)
    uid: str = Field(description="Its uid.", min_length=1, max_length=64)


class DecisionRecord(ApiModel):
    """Why this batch size: all that is needed to make the decision again."""

    policy: PolicyName = Field(description="The policy that decided.")
    kind: DecisionKind = Field(
        description="Trial: to learn of a batch size. Sample: drawn by its odds of being the cheapest. Incumbent: "
        "believed cheapest. Prune: a step of the published policy's pruning. Default: the default batch size."
    )
    reason: str = Field(description="Why, in a sentence.", max_length=1024)
    seed: str = Field(description="Seed of the random draws, a decimal integer.", max_length=20, pattern=r"^[0-9]+$")
    digest: str = Field(description="Digest of the observations that it was decided from.", max_length=128)


class TrainingRecurrenceSpec(ApiModel):
    """The decision, written once."""

    rules = (
        Rule(
            "self == oldSelf",
            "the spec as it was, since a decision is immutable; to run with another one, change the "
            "RecurringTrainingJob and its runRequest",
        ),
    )

    job_ref: JobReference = Field(description="The RecurringTrainingJob that it is an attempt of.")
    index: int = Field(description="Index of the recurrence, from 0.", ge=0)
    attempt: int = Field(description="Index of the attempt within the recurrence, from 0.", ge=0)
    slot: str = Field(
        description="What the recurrence was started for: a scheduled time or a run request.",
        min_length=1,
        max_length=160,
    )
    scheduled_time: Time = Field(description="When it was due.")
    batch_size: BatchSizeNumber = Field(description="The batch size to train with.")
    power_limit_watts: int | None = Field(
        default=None,
        description="The power limit to hold on each GPU, in watts; absent: measure limits, or leave them alone.",
        ge=1,
        le=MAX_WATTS,
    )
    profile_power_limits: bool = Field(
        default=False, description="Whether power limits are measured during this attempt, and the best one then held."
    )
    max_epochs: int = Field(description="Epochs after which the attempt ends without the target.", ge=1, le=1_000_000)
    target: Target = Field(description="The target, as the job's spec had it.")
    learning_rate_scale: NonNegativeDecimalString = Field(
        description="By what the training multiplies its learning rate, relative to the default batch size."
    )
    stop_cost_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Cost at which the attempt is stopped, in joules; absent: never for being dear."
    )
    energy_weight_percent: int = Field(
        description="Weight of energy in the cost, as the job's spec had it, in percent.", ge=0, le=100
    )
    parameters: Annotated[dict[str, ParameterValue], Field(max_length=8)] = Field(
        default_factory=dict, description="The values of the further parameters, by name."
    )
    decision: DecisionRecord = Field(description="Why this batch size.")


class WorkloadReference(ApiModel):
    """The object that runs the attempt."""

    api_version: str = Field(description="Its API version.", min_length=1, max_length=317)
    kind: str = Field(description="Its kind.", min_length=1, max_length=63)
    name: str = Field(description="Its name.", min_length=1, max_length=253)
    uid: str = Field(default="", description="Its uid.", max_length=64)


class Usage(ApiModel):
    """What the attempt took."""

    gpu_energy_joules: NonNegativeDecimalString = Field(description="Energy of all its GPUs, in joules.")
    duration_seconds: NonNegativeDecimalString = Field(description="Time from start to end, in seconds.")
    devices: int = Field(default=0, description="Number of GPUs.", ge=0)
    gpu_product: str = Field(default="", description="Their product name.", max_length=128)
    attribution: Attribution = Field(
        default=Attribution.UNKNOWN,
        description="Exclusive: the energy is this attempt's alone. Shared: others used the GPUs too, so nothing is "
        "learned from it. Unknown: could not be told.",
    )
    coverage_percent: DecimalString | None = Field(
        default=None, description="Part of the attempt's time for which energy was measured, in percent."
    )
    energy_source: EnergySource = Field(
        default=EnergySource.PROCESS,
        description="Whose word energy and time are: of both, of whom knows better what the attempt used. Process: the "
        "training processes', from their first report to their last. Agent: the node agents', from when the pods were "
        "given their GPUs until they gave them back.",
    )
    uncertainty_joules: NonNegativeDecimalString | None = Field(
        default=None, description="How far the energy may be off, in joules; absent: not known."
    )
    reported_energy_joules: NonNegativeDecimalString | None = Field(
        default=None,
        description="The energy that the training processes reported, where the agents told of all of it, too.",
    )
    attributed_energy_joules: NonNegativeDecimalString | None = Field(
        default=None,
        description="The energy that the node agents attributed to the attempt's pods; absent: none told of all of it.",
    )


class Cost(ApiModel):
    """What the attempt cost."""

    joules: NonNegativeDecimalString = Field(description="w*energy + (1-w)*maxPower*time, in joules.")
    relative_to_default_percent: DecimalString | None = Field(
        default=None, description="The same in percent of a recurrence in the default configuration."
    )
    money: Money | None = Field(default=None, description="What the energy cost, where a price is given.")


class PodReference(ApiModel):
    """A pod of the attempt."""

    uid: str = Field(description="Its uid.", min_length=1, max_length=64)
    node: str = Field(description="The node that it was bound to.", min_length=1, max_length=253)


class TrainingRecurrenceStatus(ApiModel):
    """What became of the attempt."""

    observed_generation: int | None = Field(default=None, description="The generation of the spec seen last.", ge=0)
    conditions: Conditions = ()
    workload_ref: WorkloadReference | None = Field(default=None, description="The object that runs the attempt.")
    devices: int = Field(
        default=0,
        description="How many GPUs the training containers of its workload ask for, by the template that it was "
        "started from; 0: the template does not say.",
        ge=0,
    )
    pods: Annotated[tuple[PodReference, ...], Field(max_length=MAX_PODS, json_schema_extra=list_map("uid"))] = Field(
        default=(),
        description="The pods of its Job that were seen: what a node's agent tells of one that is gone is its.",
    )
    start_time: Time | None = Field(default=None, description="When it started to run.")
    completion_time: Time | None = Field(default=None, description="When it ended.")
    progress: Progress | None = Field(default=None, description="What it has reported so far.")
    usage: Usage | None = Field(default=None, description="What it took.")
    usage_at_outcome: Usage | None = Field(
        default=None,
        description="What it took as it was known when the outcome was written, where an agent's later word has "
        "amended usage and cost since: what the policy learned from. No devices: nothing was known. Absent: usage is.",
    )
    cost: Cost | None = Field(default=None, description="What it cost.")
    result: Result | None = Field(default=None, description="How it ended; absent while it goes on.")
    epochs: NonNegativeDecimalString | None = Field(default=None, description="Epochs run at its end.")
    message: str = Field(default="", description="What happened, in a sentence.", max_length=4096)


class TrainingRecurrence(ApiModel):
    """One attempt of one recurrence: an immutable decision and its measured cost. Written by the operator."""

    resource: ClassVar[Resource] = Resource(
        kind="TrainingRecurrence",
        plural="trainingrecurrences",
        singular="trainingrecurrence",
        short_name="trec",
        scope=Scope.NAMESPACED,
        columns=(
            Column("Job", ".spec.jobRef.name", "The RecurringTrainingJob", wide=True),
            Column("Index", ".spec.index", "Index of the recurrence", "integer"),
            Column("Attempt", ".spec.attempt", "Index of the attempt", "integer", wide=True),
            Column("Batch", ".spec.batchSize", "Batch size", "integer"),
            Column("Limit (W)", ".spec.powerLimitWatts", "Power limit of each GPU", "integer"),
            Column("Why", ".spec.decision.kind", "Why this batch size"),
            Column("State", '.status.conditions[?(@.type=="Running")].reason', "Waiting, Running, or how it ended"),
            Column("Energy (J)", ".status.usage.gpuEnergyJoules", "Energy of its GPUs"),
            Column("Time (s)", ".status.usage.durationSeconds", "Its duration"),
            Column("Cost (J)", ".status.cost.joules", "Its cost"),
            Column("Of default (%)", ".status.cost.relativeToDefaultPercent", "Cost against the default", wide=True),
            Column("Age", ".metadata.creationTimestamp", "Time since creation", "date"),
            Column(
                "Message",
                '.status.conditions[?(@.type=="Running")].message',
                "What it waits for, or why it ended",
                wide=True,
            ),
        ),
    )

    api_version: Literal["wattloop.dev/v1alpha1"] = API_VERSION
    kind: Literal["TrainingRecurrence"] = "TrainingRecurrence"
    metadata: ObjectMeta = Field(default=ObjectMeta())
    spec: TrainingRecurrenceSpec = Field(description="The decision, written once.")
    status: TrainingRecurrenceStatus = Field(
        default=TrainingRecurrenceStatus(), description="What became of the attempt."
    )
