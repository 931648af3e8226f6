"""The content of each view: what its template shows, and what `/api` gives as JSON."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from wattloop_operator.history.gpu_holders import GpuLine
from wattloop_operator.history.job_overview import JobLine
from wattloop_operator.history.lines import Interval

VALUES = "Values of the further parameters by name."


# Of what is known of an attempt or a job, by the same names.
OF_ATTRIBUTES = ConfigDict(from_attributes=True)
Text = Annotated[str, BeforeValidator(str)]


class View(BaseModel):
    """What all views have."""

    unreadable_rows: list[str] = Field(
        default=[], description="Rows of the database that cannot be read, and are left out; empty if all can."
    )


class JobsView(View):
    """The jobs, one page of them."""

    database: str = Field(description="The database, without a password, or the cluster that is read.")
    version: str = Field(description="Changes when anything of any job does.")
    command: str = Field(description="The command that says the same.")
    viewer: str = Field(description="The user who has signed in; empty without authentication.")
    missing: list[str] = Field(description="What is not shown of all that the viewer may see, and why.")
    no_jobs_reason: str = Field(description="Why the viewer sees no job, and what to do; empty if there is none.")
    first_step: str = Field(description="The command that makes the first job.")
    search: str = Field(description="The text that the names contain; empty for all.")
    total: int = Field(description="Number of jobs whose names contain the text.")
    page: int = Field(description="Number of this page, from 1.")
    pages: int = Field(description="Number of pages.")
    energy_unit: str = Field(description="The unit in which the page shows all energies.")
    time_unit: str = Field(description="The unit in which the page shows all times.")
    jobs: list[JobLine] = Field(description="The jobs of this page.")


class DecisionView(BaseModel):
    """A decision: what runs, and why."""

    recurrence: int = Field(description="Index of the recurrence.")
    attempt: int = Field(description="Index of the attempt within it.")
    batch_size: int = Field(description="The batch size.")
    parameters: dict[str, str] = Field(description=VALUES)
    power_limit_watts: float | None = Field(description="Power limit of each GPU; null for none, or if it is measured.")
    measures_limits: bool = Field(default=False, description="Whether the attempt measures power limits first.")
    kind: str = Field(description="Kind of the decision, such as Trial or Incumbent.")
    reason: str = Field(description="Why, as a sentence.")
    outcome: str | None = Field(default=None, description="The result; null before there is one.")
    energy_joules: float | None = Field(default=None, description="The energy of the attempt; null if it is not known.")
    time_seconds: float | None = Field(default=None, description="The time of the attempt; null if it is not known.")


class BeliefView(BaseModel):
    """What the policy believes of one batch size."""

    batch_size: int = Field(description="The batch size.")
    parameters: dict[str, str] = Field(description=VALUES)
    state: str = Field(description="incumbent, tried, missed (no run reached the target), untried or excluded.")
    observations: int = Field(description="Number of runs; crashes do not count.")
    missed: int = Field(description="Number of these runs that did not reach the target.")
    cost_percent: Interval | None = Field(
        description="Expected cost of reaching the target, in percent of that of cost_percent_of; null if not known."
    )
    crashes: int = Field(description="Number of crashes in a row.")
    note: str = Field(description="Why it is excluded, or a remark; empty for none.")


class MarkView(BaseModel):
    """Where the job begins to train something else, or somewhere else."""

    model_config = OF_ATTRIBUTES

    recurrence: int = Field(description="Index of the first recurrence that differs.")
    kind: str = Field(description="What is different: target, template, image or GPU.")
    text: str = Field(description="What it was and what it is.")


class RecurrenceView(BaseModel):
    """One attempt, with figures as in `wattloop history`."""

    model_config = OF_ATTRIBUTES

    recurrence: int = Field(description="Index of the recurrence.")
    attempt: int = Field(description="Index of the attempt within it.")
    configuration: Text = Field(description="Batch size and further parameters.")
    power_limit_watts: float | None = Field(description="Power limit of each GPU at its end; null for none.")
    epochs: float = Field(description="Epochs run.")
    outcome: str = Field(description="The result.")
    energy_joules: float | None = Field(description="Energy of all GPUs; null if it is not known.")
    time_seconds: float | None = Field(description="Duration; null if it is not known.")
    metric: float | None = Field(description="Last value of the target's metric; null if none was reported.")
    cost_saving_percent: Interval | None = Field(
        description="What its recurrence cost less than the default; null for a default run and until it is known."
    )
    purpose: str | None = Field(description="baseline, learning or chosen; null without a comparison.")
    reason: str = Field(description="Why the configuration was chosen.")


class TradeoffView(BaseModel):
    """Energy and time to the target with one configuration at one power limit."""

    model_config = OF_ATTRIBUTES

    configuration: Text = Field(description="Batch size and further parameters.")
    power_limit_watts: float | None = Field(description="Power limit of each GPU; null for none.")
    energy_joules: float = Field(description="Mean energy to the target.")
    time_seconds: float = Field(description="Mean time to the target.")
    runs: int = Field(description="Runs that were measured; 0 if it follows from the power profile.")
    on_front: bool = Field(description="Whether no other point has less energy and less time.")


class AttemptView(BaseModel):
    """A running attempt."""

    name: str = Field(description="Name of its TrainingRecurrence.")
    recurrence: int = Field(description="Index of the recurrence.")
    attempt: int = Field(description="Index of the attempt within it.")
    configuration: str = Field(description="Batch size and further parameters.")
    started_at: datetime | None = Field(description="When it started; null before.")
    epoch: float | None = Field(description="Epochs run so far.")
    max_epochs: float = Field(description="Epochs after which it ends without the target.")
    expected_epochs: float | None = Field(description="Mean epochs to the target of earlier runs like it.")
    limit_epochs: float | None = Field(description="Epochs at which it exceeds its cost limit, at the cost so far.")
    target: str = Field(description="Metric and threshold of its target.")
    metric: float | None = Field(description="Latest value of the metric.")
    final_metric: Interval | None = Field(description="Predicted metric after all epochs; null if it is not known.")
    energy_joules: float | None = Field(description="Energy so far; null if it is not known.")
    time_seconds: float | None = Field(description="Time on its GPUs so far; null if it is not known.")
    limit_percent: float | None = Field(
        description="Cost so far, without the trials of probes, in percent of that at which it is stopped; null if it "
        "has no limit."
    )
    power_limit_watts: int | None = Field(description="Power limit that is held on each GPU; null if none is.")
    refused_limit: str = Field(description="Why the power limit that was requested last is not held; empty if it is.")
    gpus: int = Field(description="Number of GPUs that its template requests; 0 if it does not state it.")
    pods: list[str] = Field(description="Its pods with their nodes; empty in local mode.")
    stop_reason: str = Field(description="Why it was asked to stop; empty if it was not.")


class JobView(View):
    """A job: its decisions, its beliefs, its recurrences and its running attempts."""

    namespace: str = Field(description="Namespace of the job.")
    name: str = Field(description="Name of the job.")
    version: str = Field(description="Changes when anything of any job does.")
    history_version: str = Field(description="Changes when an attempt has ended, or a setting of the job is changed.")
    command: str = Field(description="The command that says the same.")
    plot_command: str = Field(description="The command that draws the same pictures.")
    energy_unit: str = Field(description="The unit in which the page shows all energies.")
    time_unit: str = Field(description="The unit in which the page shows all times.")
    overview: JobLine | None = Field(description="The job as in the list of jobs.")
    missing: list[str] = Field(description="Why recurrences of the job are not shown.")
    money_saved: str = Field(description="Price of the saved energy, with its interval; empty without a price.")
    summary: list[str] = Field(description="What a recurrence costs now, what was saved, and what must be known of it.")
    last_decision: DecisionView | None = Field(description="The latest decision; null before the first.")
    next_decision: DecisionView | None = Field(
        description="The decision of the next recurrence, by what is known now; null if it is not known."
    )
    next_unknown: str = Field(description="Why the next decision is not known; empty if it is.")
    beliefs: list[BeliefView] = Field(description="What the policy believes of each batch size.")
    cost_percent_of: str = Field(description="The configuration whose expected cost is 100 % among the beliefs.")
    running: list[AttemptView] = Field(description="The running attempts.")
    marks: list[MarkView] = Field(description="Where the job begins to train something else.")
    tradeoff: list[TradeoffView] = Field(description="Energy and time to the target.")
    total: int = Field(description="Number of attempts that ended.")
    page: int = Field(description="Number of this page of them, from 1.")
    pages: int = Field(description="Number of pages.")
    recurrences: list[RecurrenceView] = Field(description="The attempts of this page, the latest first.")


class ConditionView(BaseModel):
    """One aspect of the state of a job or of a running attempt."""

    subject: str = Field(description="The job, or the attempt.")
    type: str = Field(description="Type of the condition.")
    status: str = Field(description="True, False or Unknown.")
    reason: str = Field(description="Reason of the status, for programs.")
    message: str = Field(description="Explanation, with the next step if one is needed.")
    since: datetime = Field(description="When the status last changed.")


class FailureView(BaseModel):
    """Why an attempt failed."""

    name: str = Field(description="Name of the TrainingRecurrence.")
    outcome: str = Field(description="The result.")
    message: str = Field(description="Explanation of the result, with the end of the output if it tells.")


class ConditionsView(View):
    """Why a job does not run."""

    namespace: str = Field(description="Namespace of the job.")
    name: str = Field(description="Name of the job.")
    version: str = Field(description="Changes when anything of any job does.")
    command: str = Field(description="The command that says the same.")
    overview: JobLine | None = Field(description="The job as in the list of jobs.")
    missing: list[str] = Field(description="Why recurrences of the job are not shown.")
    conditions: list[ConditionView] = Field(description="The conditions of the job and of its running attempts.")
    failures: list[FailureView] = Field(description="The latest attempts that missed the target, the newest first.")


class NodeLine(BaseModel):
    """The GPUs of running attempts that are known to be on a node."""

    node: str = Field(description="The node.")
    gpus: int = Field(description="Number of these GPUs.")
    mean_power_watts: float | None = Field(description="Sum of their mean powers; null if one is not known.")
    recent_power_watts: float | None = Field(description="Sum of their latest powers; null if one is not known.")
    recent_until: datetime | None = Field(description="When the oldest of these latest powers was reported.")
    limit_watts: float | None = Field(description="Sum of the limits that are held; null if a GPU has none.")
    partial_attempts: int = Field(
        description="Attempts on this and other nodes, whose GPUs are in no sum because it is not known where each is."
    )


class ReportedNodeLine(BaseModel):
    """All GPUs of a node, as its agent reports them."""

    node: str = Field(description="The node.")
    gpus: int = Field(description="Number of its GPUs.")
    free_gpus: int | None = Field(description="Number of those that no pod holds; null if it is not known.")
    power_watts: float | None = Field(description="Power of all; null if that of one is not known.")
    free_power_watts: float | None = Field(description="Power of those that no pod holds; null if it is not known.")
    reported_at: datetime | None = Field(description="When these values were reported.")


class OtherGpuLine(BaseModel):
    """A GPU that is not among those of the attempts, as the agent of its node reports it."""

    gpu: str = Field(description="UUID of the GPU.")
    node: str = Field(description="Its node.")
    product: str = Field(description="Product name; empty if it is not known.")
    pods: int | None = Field(description="Number of pods that hold it; 0: it is free; null if it is not known.")
    holders: list[str] = Field(description="The first of these pods, as NAMESPACE/NAME.")
    power_watts: float | None = Field(description="Mean power between the agent's latest two reports; null if unknown.")
    limit_watts: float | None = Field(description="Power limit in force, whoever set it; null if it is not known.")
    max_limit_watts: float | None = Field(description="Highest limit that it accepts; null if it is not known.")
    reported_at: datetime | None = Field(description="When these values were reported.")


class ClusterView(View):
    """The GPUs that running attempts hold, and all others that agents report, one page of them."""

    version: str = Field(description="Changes when anything of any job does.")
    command: str = Field(description="The command that says the same; empty if there is none.")
    missing: list[str] = Field(description="What is not shown of all that the viewer may see, and why.")
    unknown: str = Field(description="Why they are not known, and where they are; empty if they are.")
    nodes: list[NodeLine] = Field(description="Sums by node, of all pages.")
    reported_unknown: str = Field(description="Why not all GPUs are known, and what shows them; empty if they are.")
    reported_nodes: list[ReportedNodeLine] = Field(description="All GPUs by node, of all pages.")
    total: int = Field(description="Number of lines.")
    page: int = Field(description="Number of this page, from 1.")
    pages: int = Field(description="Number of pages.")
    gpus: list[GpuLine] = Field(description="The GPUs of running attempts on this page.")
    other_gpus: list[OtherGpuLine] = Field(description="The other GPUs on this page, free ones first.")


class AmountOfMoney(BaseModel):
    """An amount in a currency."""

    amount: float = Field(description="The amount.")
    currency: str = Field(description="ISO 4217 code.")


class TeamLine(BaseModel):
    """What the jobs of a namespace used in a month."""

    namespace: str = Field(description="The namespace.")
    jobs: int = Field(description="Number of jobs with attempts that ended in the month.")
    attempts: int = Field(description="Number of these attempts.")
    coverage_percent: float = Field(description="Attempts whose energy was measured, in percent.")
    energy_joules: float | None = Field(description="Energy of the measured attempts; null if none was measured.")
    gpu_seconds: float | None = Field(
        description="Time of the attempts whose time is known, times their GPUs; null if none is known."
    )
    money: list[AmountOfMoney] = Field(description="Price of the energy where the tariff has a price, by currency.")
    unpriced_jobs: int = Field(description="Jobs with energy whose tariff has no price.")
    carbon_grams: float | None = Field(description="Emissions where the tariff has a carbon intensity; null for none.")
    jobs_without_carbon: int = Field(description="Jobs with energy whose tariff has no carbon intensity.")


class MonthLine(BaseModel):
    """What a job used in a month."""

    namespace: str = Field(description="Namespace of the job.")
    name: str = Field(description="Name of the job.")
    queue: str = Field(description="The queue of its workloads; empty if it has none, or if that is not known.")
    attempts: int = Field(description="Number of attempts that ended in the month.")
    coverage_percent: float = Field(description="Attempts whose energy was measured, in percent.")
    energy_joules: float | None = Field(description="Energy of the measured attempts; null if none was measured.")
    gpu_seconds: float | None = Field(
        description="Time of the attempts whose time is known, times their GPUs; null if none is known."
    )
    money: AmountOfMoney | None = Field(description="Price of the energy; null if the tariff has no price.")
    carbon_grams: float | None = Field(description="Emissions, CO2 equivalent; null if the tariff has no intensity.")


class MonthView(View):
    """What teams and jobs used in a month, in UTC."""

    version: str = Field(description="Changes when anything of any job does.")
    month: str = Field(description="The month, such as 2026-03.")
    previous: str | None = Field(description="The month before; null if there is none.")
    following: str | None = Field(description="The month after; null if it has not begun.")
    command: str = Field(description="The command that says the same.")
    missing: list[str] = Field(description="What is not shown of all that the viewer may see, and why.")
    partial: str = Field(description="Why the usage is a part, and where all of it is; empty if it is whole.")
    notes: list[str] = Field(description="What must be known of the energies of jobs.")
    energy_unit: str = Field(description="The unit in which the page shows all energies.")
    time_unit: str = Field(description="The unit in which the page shows all times.")
    teams: list[TeamLine] = Field(description="The teams, by namespace.")
    total: int = Field(description="Number of jobs.")
    page: int = Field(description="Number of this page of them, from 1.")
    pages: int = Field(description="Number of pages.")
    jobs: list[MonthLine] = Field(description="The jobs of this page, by namespace and name.")
