"""RecurringTrainingJob: a training job that runs repeatedly, and the choices that Wattloop makes for it."""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from wattloop_operator.api.batch_size import MAX_PARAMETERS, BatchSize, ParameterSpec, PolicyName
from wattloop_operator.api.cron import SCHEDULE_FORM, SCHEDULE_RULES, Schedule, TimeZone
from wattloop_operator.api.field_types import DNS_LABEL_PATTERN, MAX_JOB_NAME_CHARACTERS, SECONDS_OF_YEAR
from wattloop_operator.api.meta import ObjectMeta
from wattloop_operator.api.model import API_VERSION, SET, ApiModel, PrinterColumn, Resource, Rule, Scope, list_map
from wattloop_operator.api.model_output import Output
from wattloop_operator.api.objective import Objective, ProgressDeadline
from wattloop_operator.api.power_fields import Power
from wattloop_operator.api.recurring_training_job_status import RecurringTrainingJobStatus, SavingName
from wattloop_operator.api.reporting_source import Reporting
from wattloop_operator.api.template import Template


class Mode(StrEnum):
    """Whether Wattloop changes the runs of a job."""

    OPTIMIZE = "Optimize"
    ADVISE = "Advise"
    FIXED = "Fixed"


class ConcurrencyPolicy(StrEnum):
    """What happens when a run is due while another one is active."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


ContainerName = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL_PATTERN)]
SPEC = (
    "At each start, run the template until it reaches the objective, with the batchSize, the parameters and the "
    "power limit that the policy chooses. The other fields state how the metric is reported and the model published, "
    "when runs are held back, what follows a failure, and which ended runs are kept."
)


class RecurringTrainingJobSpec(ApiModel):
    """What runs, when, towards which target, and what Wattloop may choose."""

    rules = (
        *SCHEDULE_RULES,
        Rule(
            "!has(self.output) || !has(self.reporting) || !has(self.reporting.source) || "
            "self.reporting.source == 'Push'",
            "reporting.source Push with output, because the wattloop client in the training publishes the model",
            ".output",
        ),
    )

    schedule: Schedule | None = Field(
        default=None,
        description=f"{SCHEDULE_FORM.capitalize()}. TZ= is not allowed; use timeZone. Absent: runs start by "
        "continuous, or by runRequest alone.",
    )
    time_zone: TimeZone = Field(
        default="Etc/UTC",
        description="Time zone of the schedule, a name in the IANA database such as Europe/Paris. A local time that "
        "daylight saving time skips runs once, right after the gap; a local time that it repeats runs once.",
    )
    continuous: bool = Field(
        default=False,
        description="true starts the next run when one ends, in place of a schedule. With maxRecurrences 1 the job "
        "runs once.",
    )
    run_request: str = Field(
        default="",
        description="Any text, such as a date or a commit ID. Another text starts one run immediately. Empty: none.",
        max_length=128,
    )
    suspend: bool = Field(default=False, description="true starts no further runs. Active runs continue.")
    training_containers: Annotated[tuple[ContainerName, ...], Field(min_length=1, max_length=16)] | None = Field(
        default=None,
        description="Names of the containers that train. Only they receive Wattloop's environment. Absent: in each pod "
        "template those with GPUs, or else the first.",
        json_schema_extra=SET,
    )
    template: Template = Field(
        description="Workload of a run, as the jobTemplate of a CronJob; apiVersion and kind for other kinds than Job."
    )
    objective: Objective = Field(description="The target of a run, and the weight of energy against time.")
    batch_size: BatchSize = Field(description="The batch sizes to choose from.")
    parameters: Annotated[
        tuple[ParameterSpec, ...], Field(max_length=MAX_PARAMETERS, json_schema_extra=list_map("name"))
    ] = Field(
        default=(),
        description="Further parameters, such as a learning rate, passed to the training as WATTLOOP_PARAM_<NAME>. "
        "The policy chooses them together with the batch size; it can choose from at most 256 combinations. "
        "Absent: none.",
    )
    power: Power = Field(default=Power(), description="Power limits and clocks of the GPUs.")
    mode: Mode = Field(
        default=Mode.OPTIMIZE,
        description="Optimize: runs have the batch size and power limit that Wattloop decides. Advise: every run has "
        "the default batch size and no power limit, measures no power limits and is never stopped for its cost; "
        "status.next shows the decision and what it is expected to save. Fixed: every run has the default batch size "
        "and parameters, and spec.power chooses the power limit; for a job whose cost is measured, or whose batch size "
        "must not change. A change of the mode applies to the next attempt and keeps what was learned.",
    )
    learn_since: str = Field(
        default="",
        description="Any text, such as a date or a commit ID. Another text forgets all observations and crashes of the "
        "runs before, after a change of data or code that Wattloop cannot see. They stay in the history and the "
        "totals. Absent: nothing is forgotten.",
        max_length=128,
    )
    reporting: Reporting = Field(default=Reporting(), description="How Wattloop receives the metric.")
    output: Output | None = Field(
        default=None,
        description="Where attempts write their models, and where the model of the latest attempt that reached the "
        "target is published. Absent: the training keeps its models by itself.",
    )
    concurrency_policy: ConcurrencyPolicy = Field(
        default=ConcurrencyPolicy.FORBID,
        description="What happens when a run is due while another one is active. Forbid: the new run is skipped, "
        "since learning is sequential. Allow: both run concurrently. Replace: the active run is cancelled.",
    )
    starting_deadline_seconds: int | None = Field(
        default=None,
        description="Deadline for starting a run after its scheduled time, in seconds. A later start counts as "
        "missed. Absent: no deadline. One run replaces all that were missed.",
        ge=1,
        le=SECONDS_OF_YEAR,
    )
    max_recurrences: int | None = Field(
        default=None,
        description="Maximum number of recurrences. The policy explores less towards the end. Absent: no maximum.",
        ge=1,
        le=1_000_000,
    )
    retries: int = Field(
        default=5,
        description="Maximum number of further attempts of a recurrence after the first one missed the target or "
        "crashed. While no batch size is expected to reach the target, only a crash or a disruption is retried.",
        ge=0,
        le=20,
    )
    active_deadline_seconds: int | None = Field(
        default=None,
        description="Seconds after which a running attempt is terminated, also if it makes progress. "
        "progressDeadlineSeconds ends one that makes none. Absent: no deadline.",
        ge=1,
        le=SECONDS_OF_YEAR,
    )
    progress_deadline_seconds: ProgressDeadline | None = Field(
        default=None,
        description="Seconds without a report from any process after which a running attempt is ended as hung. "
        "run.step sends a report when a quarter of them has passed without one; a training that does not call it needs "
        "more seconds than its longest epoch. Time in which a pod is scheduled or started does not count. Absent: an "
        "attempt may be silent for ever. A change applies to the next attempt.",
    )
    successful_runs_history_limit: int = Field(
        default=10,
        description="Number of recurrences that reached the target to keep as objects. Their observations are kept "
        "in any case.",
        ge=0,
        le=1_000,
    )
    failed_runs_history_limit: int = Field(
        default=5, description="Number of failed recurrences to keep as objects.", ge=0, le=1_000
    )

    @property
    def chooses(self) -> bool:
        """Whether runs have other configurations than the default one."""
        return self.mode is Mode.OPTIMIZE

    @property
    def models_cost(self) -> bool:
        """Whether the policy models the cost of each batch size, so that it uses curves and other targets."""
        return self.mode is not Mode.FIXED and self.batch_size.policy is PolicyName.THOMPSON_SAMPLING


# JSONPath of the latest ended recurrence: kubectl shows the first one that a filter finds.
ENDED = ".status.recentRecurrences[?(@.result)]"


def _saving_text(name: SavingName) -> str:
    return f'.status.savings[?(@.name=="{name.value}")].text'


class RecurringTrainingJob(ApiModel):
    """A training job that runs repeatedly. Wattloop chooses batch size and GPU power limit to reduce its cost."""

    resource: ClassVar[Resource] = Resource(
        kind="RecurringTrainingJob",
        plural="recurringtrainingjobs",
        singular="recurringtrainingjob",
        short_name="rtj",
        scope=Scope.NAMESPACED,
        columns=(
            # Without -o wide they fit a terminal of 80 characters.
            PrinterColumn("State", ".status.state", "Waiting, Running, Failing, Suspended, Unreachable, or Complete"),
            PrinterColumn("Failure", ".status.failure", "Why runs fail"),
            PrinterColumn(
                "Cost saved", _saving_text(SavingName.COST), "Cost saved so far, relative to the default configuration"
            ),
            PrinterColumn("Next run", ".status.next.time", "Start of the next run"),
            PrinterColumn(
                "Mode", ".spec.mode", "Whether runs have the decided configuration, or the default one", wide=True
            ),
            PrinterColumn(
                "Batch", ".status.recentRecurrences[0].batchSize", "Batch size of the latest run", "integer", wide=True
            ),
            PrinterColumn(
                "Best", ".status.best.batchSize", "Batch size with the lowest expected cost", "integer", wide=True
            ),
            PrinterColumn(
                "Next batch",
                ".status.next.batchSize",
                "Batch size of the next run, by what is known now; in mode Advise, the advised one",
                "integer",
                wide=True,
            ),
            PrinterColumn(
                "Next saves (%)",
                ".status.next.savingPercent",
                "What that is expected to save, relative to the default configuration",
                wide=True,
            ),
            PrinterColumn("Energy", f"{ENDED}.energy", "Energy of the latest run", wide=True),
            PrinterColumn("Metric", f"{ENDED}.metric", "Last value of the metric in the latest run", wide=True),
            PrinterColumn("Energy saved", _saving_text(SavingName.ENERGY), "Energy saved so far", wide=True),
            PrinterColumn("Time saved", _saving_text(SavingName.TIME), "Time saved so far", wide=True),
            PrinterColumn(
                "Plan",
                '.status.conditions[?(@.type=="PlanAvailable")].message',
                "FrequencyPlan of the pipeline, and what it saves",
                wide=True,
            ),
            PrinterColumn("Published", ".status.published.recurrence", "Recurrence whose model is current", wide=True),
            PrinterColumn("Suspended", ".spec.suspend", "Whether no further runs start", "boolean", wide=True),
            PrinterColumn("Runs", ".status.totals.recurrences", "Number of recurrences so far", "integer", wide=True),
            PrinterColumn("Age", ".metadata.creationTimestamp", "Time since creation", "date", wide=True),
            PrinterColumn(
                "Message", '.status.conditions[?(@.type=="Ready")].message', "Why the job is not ready", wide=True
            ),
        ),
    )
    rules = (
        Rule(
            f"size(self.metadata.name) <= {MAX_JOB_NAME_CHARACTERS}",
            f"a name of at most {MAX_JOB_NAME_CHARACTERS} characters, since names of runs and pods are derived from it",
            ".metadata.name",
        ),
        Rule(
            "!self.metadata.name.contains('.')",
            "a name of lower-case letters, digits and -, without a dot, since names of pods are derived from it",
            ".metadata.name",
        ),
    )

    api_version: Literal["wattloop.dev/v1alpha1"] = API_VERSION
    kind: Literal["RecurringTrainingJob"] = "RecurringTrainingJob"
    metadata: ObjectMeta = Field(default=ObjectMeta())
    spec: RecurringTrainingJobSpec = Field(description=SPEC)
    status: RecurringTrainingJobStatus = Field(
        default=RecurringTrainingJobStatus(), description="Observed state of the job: cost, savings, next run."
    )
