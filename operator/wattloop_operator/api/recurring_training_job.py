"""RecurringTrainingJob: what a user writes, and what Wattloop says of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from wattloop_operator.api.batch_size import BatchSize, Parameter
from wattloop_operator.api.meta import ObjectMeta
from wattloop_operator.api.model import UNPUBLISHED_DEFAULT, ApiModel, Rule, list_map
from wattloop_operator.api.objective import Objective
from wattloop_operator.api.policy import PolicyChoice, ThompsonSamplingPolicy
from wattloop_operator.api.power import Power
from wattloop_operator.api.recurring_training_job_status import RecurringTrainingJobStatus
from wattloop_operator.api.resource import API_VERSION, Column, Resource, Scope
from wattloop_operator.api.template import Template
from wattloop_operator.api.trigger import Trigger

# A recurrence's name is the job's with its slot, a pod's is that with a suffix: all must fit into 63 characters.
MAX_NAME_CHARACTERS = 35


class ConcurrencyPolicy(StrEnum):
    """What happens when a run is due while another one is still going on."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


class MissedRunPolicy(StrEnum):
    """What happens with starts that were missed."""

    RUN_ONCE = "RunOnce"
    SKIP = "Skip"


class ReportingSource(StrEnum):
    """Where the metric comes from."""

    PUSH = "Push"
    LOGS = "Logs"
    TERMINATION_MESSAGE = "TerminationMessage"


class RetryPolicy(ApiModel):
    """How often a recurrence is tried again."""

    limit: int = Field(
        default=5,
        description="How many more attempts a recurrence gets after its first one missed the target or crashed.",
        ge=0,
        le=20,
    )


class Reporting(ApiModel):
    """How the metric reaches Wattloop."""

    source: ReportingSource = Field(
        default=ReportingSource.PUSH,
        description="Push: the script reports with the wattloop client (epochs can be stopped early). Logs: lines "
        "name=value on stdout are read, so that a script needs no change. TerminationMessage: the "
        "container's termination message holds name=value lines, read at the end. This version carries out Push "
        "alone; a job with another source is held back (Ready is False, NotSupported).",
    )


class RecurringTrainingJobSpec(ApiModel):
    """What to train, when, and what may be chosen."""

    trigger: Trigger = Field(description="When a run starts: exactly one of cron, interval, continuous, manual, once.")
    run_request: str | None = Field(
        default=None,
        description="Any text; a new value is one immediate run, the same value again is none. A date or a commit id "
        "serves well.",
        min_length=1,
        max_length=128,
    )
    suspend: bool = Field(
        default=False, description="true starts no further runs; one that is running goes on undisturbed."
    )
    concurrency_policy: ConcurrencyPolicy = Field(
        default=ConcurrencyPolicy.FORBID,
        description="When a run is due while another is going on: Forbid passes it over (learning is sequential), "
        "Allow starts it beside, Replace ends the older one.",
    )
    starting_deadline_seconds: int | None = Field(
        default=None,
        description="How late a run may still start, in seconds; later, it counts as missed. Leave out for no limit.",
        ge=1,
        le=31_536_000,
    )
    missed_run_policy: MissedRunPolicy = Field(
        default=MissedRunPolicy.RUN_ONCE,
        description="After starts were missed (operator away, job suspended): RunOnce makes up for all of them with "
        "one run, Skip waits for the next time.",
    )
    max_recurrences: int | None = Field(
        default=None,
        description="Number of recurrences after which no more are started. The policy explores less towards the end.",
        ge=1,
        le=1_000_000,
    )
    successful_history_limit: int = Field(
        default=10,
        description="How many recurrences that reached the target are kept as objects; what they taught stays anyway.",
        ge=0,
        le=1_000,
    )
    failed_history_limit: int = Field(
        default=5, description="How many recurrences that failed are kept as objects.", ge=0, le=1_000
    )
    active_deadline_seconds: int | None = Field(
        default=None,
        description="Seconds after which an attempt that is still running is ended; a guard against hanging processes.",
        ge=1,
        le=31_536_000,
    )
    crash_budget: int = Field(
        default=3,
        description="How often in a row a batch size may crash (out of memory, say) before it is never tried again.",
        ge=1,
        le=100,
    )
    objective: Objective = Field(description="The target to reach and the weight of energy against time.")
    batch_size: BatchSize = Field(description="The batch sizes to choose from.")
    parameters: Annotated[tuple[Parameter, ...], Field(max_length=8, json_schema_extra=list_map("name"))] = Field(
        default=(),
        description="Further knobs to choose, passed to the training as WATTLOOP_PARAM_<NAME>. This version does not "
        "search over them; a job with more than one candidate is held back (Ready is False, NotSupported).",
    )
    policy: PolicyChoice = Field(
        default=PolicyChoice(thompson_sampling=ThompsonSamplingPolicy()),
        description="Which policy chooses the batch size: exactly one of thompsonSampling (the default, and the one to "
        "take), zeus (the published algorithm, for comparison only), fixed (always the default batch size).",
        # Stored in every object, the default member would stand beside the one that a later apply names.
        json_schema_extra=UNPUBLISHED_DEFAULT,
    )
    power: Power = Field(default=Power(), description="How much power the GPUs may draw.")
    retry_policy: RetryPolicy = Field(
        default=RetryPolicy(), description="What happens after an attempt that did not reach the target."
    )
    reporting: Reporting = Field(default=Reporting(), description="How the metric reaches Wattloop.")
    template: Template = Field(description="What a run starts: exactly one of job and workload.")


class RecurringTrainingJob(ApiModel):
    """A training job that runs again and again, and costs less each time: when, what, and what may be chosen."""

    resource: ClassVar[Resource] = Resource(
        kind="RecurringTrainingJob",
        plural="recurringtrainingjobs",
        singular="recurringtrainingjob",
        short_name="rtj",
        scope=Scope.NAMESPACED,
        columns=(
            Column("Batch", ".status.recentRecurrences[0].batchSize", "Batch size of the latest run", "integer"),
            Column("Best", ".status.bestBatchSize", "Batch size believed cheapest", "integer"),
            Column("Cost (J)", ".status.recentRecurrences[0].costJoules", "Cost of the latest run, in joules"),
            Column("Saved (%)", ".status.savings.costPercent", "Cost saved so far against the default configuration"),
            Column("Next run", ".status.nextScheduleTime", "When the next run starts"),
            Column("Active", ".status.counts.active", "Runs going on now", "integer"),
            Column("Suspended", ".spec.suspend", "Whether further runs are held back", "boolean", wide=True),
            Column("Runs", ".status.counts.recurrences", "Recurrences so far", "integer", wide=True),
            Column("Ready", '.status.conditions[?(@.type=="Ready")].status', "Whether it can run"),
            Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', "Why", wide=True),
            Column("Age", ".metadata.creationTimestamp", "Time since creation", "date"),
        ),
    )
    rules = (
        Rule(
            f"size(self.metadata.name) <= {MAX_NAME_CHARACTERS}",
            f"a name of at most {MAX_NAME_CHARACTERS} characters, since those of its runs and pods are made from it",
            ".metadata.name",
        ),
        Rule(
            "!self.metadata.name.contains('.')",
            "a name of lower-case letters, digits and -, without a dot, since those of its pods are made from it",
            ".metadata.name",
        ),
    )

    api_version: Literal["wattloop.dev/v1alpha1"] = API_VERSION
    kind: Literal["RecurringTrainingJob"] = "RecurringTrainingJob"
    metadata: ObjectMeta = Field(default=ObjectMeta())
    spec: RecurringTrainingJobSpec = Field(description="What to train, when, and what may be chosen.")
    status: RecurringTrainingJobStatus = Field(
        default=RecurringTrainingJobStatus(),
        description="What Wattloop says of the job: cost, savings, next run.",
    )
