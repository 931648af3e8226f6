"""The status of a RecurringTrainingJob: progress of learning, cost, savings, and the next run."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from wattloop_operator.api.applied_plan import JobFrequencyPlan
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.batch_size import ParametersByName
from wattloop_operator.api.batch_size_policy import KIND, DecisionKind
from wattloop_operator.api.field_types import DecimalString, NonNegativeDecimalString, Time
from wattloop_operator.api.meta import Conditions
from wattloop_operator.api.model import ATOMIC, ApiModel, list_map
from wattloop_operator.api.model_output import CurrentModel

PARAMETERS: dict[str, str] = Field(default_factory=dict, description="Values of the further parameters by name.")
RecurrenceName = Annotated[str, Field(min_length=1, max_length=63)]


class JobState(StrEnum):
    """The state of a job in one word."""

    WAITING = "Waiting"
    RUNNING = "Running"
    FAILING = "Failing"
    SUSPENDED = "Suspended"
    UNREACHABLE = "Unreachable"
    COMPLETE = "Complete"


class Counts(ApiModel):
    """Numbers of recurrences and attempts."""

    recurrences: int = Field(default=0, description="Number of recurrences started so far.", ge=0)
    attempts: int = Field(default=0, description="Number of attempts started so far, including retries.", ge=0)
    reached: int = Field(default=0, description="Number of recurrences that reached the target.", ge=0)
    failed: int = Field(default=0, description="Number of recurrences that ended without reaching the target.", ge=0)
    missed: int = Field(default=0, description="Number of missed starts.", ge=0)


class Money(ApiModel):
    """An amount of money."""

    amount: DecimalString = Field(description="Amount in units of the currency.")
    currency: str = Field(description="ISO 4217 code of the currency.", max_length=3)


class ArmStatus(ApiModel):
    """What the policy has learned about one batch size and, with parameters, one combination of their values."""

    batch_size: int = Field(description="The batch size.", ge=1)
    parameters: ParametersByName = PARAMETERS
    observations: int = Field(default=0, description="Number of runs of this batch size; crashes do not count.", ge=0)
    missed: int = Field(default=0, description="Number of these runs that did not reach the target.", ge=0)
    mean_cost_joules: NonNegativeDecimalString | None = Field(
        default=None,
        description="Expected cost of a recurrence with this batch size, in joules: the mean of what its runs cost, if "
        "one reached the target.",
    )
    low_cost_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Lower bound of the cost of 90 % of later recurrences, in joules."
    )
    high_cost_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Upper bound of the cost of 90 % of later recurrences, in joules."
    )
    crashes: int = Field(default=0, description="Number of consecutive crashes since the last success.", ge=0)
    pruned: bool = Field(
        default=False, description="Whether the batch size is no longer tried; note states the reason."
    )
    note: str = Field(default="", description="Further information about the batch size.", max_length=512)


class JobTotals(ApiModel):
    """Totals of all attempts so far."""

    gpu_energy_joules: NonNegativeDecimalString = Field(description="Energy of the GPUs, in joules.")
    duration_seconds: NonNegativeDecimalString = Field(description="Duration, in seconds.")
    cost_joules: NonNegativeDecimalString = Field(description="Cost, in joules.")
    money: Money | None = Field(
        default=None, description="Price of the energy. Absent unless spec.objective.price is set."
    )
    carbon_grams: NonNegativeDecimalString | None = Field(
        default=None,
        description="Emissions of the energy, in grams of CO2 equivalent. Absent unless spec.objective.carbon is set.",
    )


class Savings(ApiModel):
    """What the job saved: what the default configuration is expected to take less what was measured, learning included.

    If the cost of an epoch has changed, as by other data, only recurrences since the change are compared. Default runs
    are the baseline and are not compared. Intervals are central 90 % intervals: what was paid is measured, so those of
    savings are those of the default configuration's expectation. That of defaultCostJoules is of a later recurrence.
    """

    default_cost_joules: NonNegativeDecimalString | None = Field(
        default=None,
        description="Expected cost of one recurrence in the default configuration, in joules: start-up and retries "
        "included, at the highest power limit.",
    )
    low_default_cost_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Lower bound of the cost of 90 % of later such recurrences."
    )
    high_default_cost_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Upper bound of the cost of 90 % of later such recurrences."
    )
    recurrences: int = Field(
        default=0,
        description="Number of recurrences that reached the target and are compared with the default: those since "
        "the cost of an epoch last changed, without runs of the default.",
        ge=0,
    )
    cost_percent: DecimalString | None = Field(
        default=None,
        description="Cost saved so far, in percent of the cost in the default configuration. Negative while learning "
        "has cost more than was saved. Absent until a recurrence with another configuration than the default one has "
        "reached the target.",
    )
    low_cost_percent: DecimalString | None = Field(default=None, description="Lower bound of costPercent.")
    high_cost_percent: DecimalString | None = Field(default=None, description="Upper bound of costPercent.")
    latest_cost_percent: DecimalString | None = Field(
        default=None,
        description="Cost saved by the latest five recurrences with the configuration that was learned, in percent of "
        "the cost in the default configuration. Absent until there is one.",
    )
    low_latest_cost_percent: DecimalString | None = Field(default=None, description="Lower bound of latestCostPercent.")
    high_latest_cost_percent: DecimalString | None = Field(
        default=None, description="Upper bound of latestCostPercent."
    )
    gpu_energy_joules: DecimalString | None = Field(
        default=None,
        description="Energy saved so far, in joules: what the default configuration is expected to use less what was "
        "measured. Absent as costPercent is.",
    )
    low_gpu_energy_joules: DecimalString | None = Field(default=None, description="Lower bound of gpuEnergyJoules.")
    high_gpu_energy_joules: DecimalString | None = Field(default=None, description="Upper bound of gpuEnergyJoules.")
    duration_seconds: DecimalString | None = Field(
        default=None,
        description="Time saved so far, in seconds: what the default configuration is expected to take less what was "
        "measured. Absent as costPercent is.",
    )
    low_duration_seconds: DecimalString | None = Field(default=None, description="Lower bound of durationSeconds.")
    high_duration_seconds: DecimalString | None = Field(default=None, description="Upper bound of durationSeconds.")
    learning_gpu_energy_joules: DecimalString | None = Field(
        default=None,
        description="What trials and the measurement of power limits used more than the default configuration, in "
        "joules; a part of gpuEnergyJoules. Negative if they used less. Absent before there was one.",
    )
    low_learning_gpu_energy_joules: DecimalString | None = Field(
        default=None, description="Lower bound of learningGpuEnergyJoules."
    )
    high_learning_gpu_energy_joules: DecimalString | None = Field(
        default=None, description="Upper bound of learningGpuEnergyJoules."
    )
    learning_duration_seconds: DecimalString | None = Field(
        default=None, description="What they took longer than the default configuration, in seconds."
    )
    low_learning_duration_seconds: DecimalString | None = Field(
        default=None, description="Lower bound of learningDurationSeconds."
    )
    high_learning_duration_seconds: DecimalString | None = Field(
        default=None, description="Upper bound of learningDurationSeconds."
    )
    money: Money | None = Field(
        default=None, description="Price of gpuEnergyJoules. Absent unless spec.objective.price is set."
    )
    carbon_grams: DecimalString | None = Field(
        default=None,
        description="Emissions of gpuEnergyJoules, in grams of CO2 equivalent. Absent unless spec.objective.carbon is "
        "set.",
    )


class JobFigures(ApiModel):
    """The figures of the job in the columns of kubectl: rounded, with units, or "unknown" or "not known yet"."""

    energy: str = Field(default="", description="Energy of the latest ended recurrence, in kWh.", max_length=32)
    metric: str = Field(
        default="",
        description="Last value of the metric in the latest ended recurrence, with four digits. Empty if none.",
        max_length=32,
    )
    cost_saved: str = Field(
        default="",
        description="Cost saved so far in percent of the cost in the default configuration, with its interval of 90 %, "
        'or "not known yet".',
        max_length=64,
    )
    energy_saved: str = Field(
        default="", description="Energy saved so far in kWh, with its interval of 90 %.", max_length=64
    )
    time_saved: str = Field(
        default="", description="Time saved so far in minutes, with its interval of 90 %.", max_length=64
    )


class ActiveRecurrence(ApiModel):
    """A reference to an active recurrence."""

    name: RecurrenceName = Field(description="Name of the TrainingRecurrence.")


class RecentRecurrence(ApiModel):
    """Summary of one recurrence."""

    name: RecurrenceName = Field(description="Name of the TrainingRecurrence of the last attempt.")
    index: int = Field(description="Index of the recurrence, from 0.", ge=0)
    attempts: int = Field(default=1, description="Number of attempts.", ge=1)
    batch_size: int = Field(description="Batch size of the last attempt.", ge=1)
    result: Result | None = Field(
        default=None, description="Result of the last attempt. Absent while the recurrence is active."
    )
    gpu_energy_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Energy of all attempts, in joules."
    )
    duration_seconds: NonNegativeDecimalString | None = Field(
        default=None, description="Duration of all attempts, in seconds."
    )
    cost_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Cost over all attempts: energy and time by their weights, which is no energy."
    )
    cost_saving_percent: DecimalString | None = Field(
        default=None,
        description="Cost saved, in percent of the expected cost in the default configuration. Absent for a run of the "
        "default configuration, and until it is known.",
    )


class ForgottenBatchSize(ApiModel):
    """What is forgotten of one batch size."""

    batch_size: int = Field(description="The batch size.", ge=1)
    before_recurrence: int = Field(description="Its attempts in recurrences with a lower index are forgotten.", ge=0)


class Forgotten(ApiModel):
    """What spec.policy.forget has made the policy forget."""

    token: str = Field(description="Latest value of spec.policy.forget.token that was processed.", max_length=128)
    before_recurrence: int = Field(
        default=0, description="All attempts in recurrences with a lower index are forgotten.", ge=0
    )
    batch_sizes: Annotated[
        tuple[ForgottenBatchSize, ...], Field(max_length=256, json_schema_extra=list_map("batchSize"))
    ] = Field(default=(), description="Batch sizes of which more is forgotten.")


class Learning(ApiModel):
    """The observations that the policy learns from, also after a change of the job."""

    since_recurrence: int | None = Field(
        default=None,
        description="Index of the first recurrence with the present target that counts. Absent before there is one.",
        ge=0,
    )
    attempts: int = Field(
        default=0, description="Number of attempts that the epochs to the target are learned from.", ge=0
    )
    carried_over: str = Field(
        default="",
        description="What counts of the other attempts, and what does not. Empty if there are none.",
        max_length=512,
    )


class Advice(ApiModel):
    """The decision for the next recurrence that mode Advise shows and does not carry out."""

    batch_size: int = Field(description="Batch size that the policy would choose.", ge=1)
    parameters: ParametersByName = Field(
        default_factory=dict, description="Values of the further parameters that the policy would choose, by name."
    )
    power_limit_watts: int | None = Field(
        default=None,
        description="Power limit that would be held on each GPU, in watts. Absent if none would be held or limits "
        "were not measured.",
        ge=1,
    )
    saving_percent: DecimalString | None = Field(
        default=None,
        description="Expected saving of a recurrence, in percent of the cost in the default configuration. Negative if "
        "it is expected to cost more, as a trial may. Absent if it is not known yet; unknown states why.",
    )
    low_saving_percent: DecimalString | None = Field(
        default=None, description="Lower bound of the central 90 % interval of savingPercent."
    )
    high_saving_percent: DecimalString | None = Field(
        default=None, description="Upper bound of the central 90 % interval of savingPercent."
    )
    reason: str = Field(default="", description="Why the policy would choose the batch size.", max_length=1024)
    unknown: str = Field(
        default="",
        description="What is not known of the saving, and why. Empty if all of it is known.",
        max_length=512,
    )


class NextDecision(ApiModel):
    """What the policy would decide for the next recurrence by what is known now."""

    recurrence: int = Field(description="Index of that recurrence, from 0.", ge=0)
    batch_size: int = Field(description="The batch size.", ge=1)
    parameters: ParametersByName = PARAMETERS
    power_limit_watts: int | None = Field(
        default=None, description="Power limit of each GPU, in watts. Absent for none, or if limits are measured.", ge=1
    )
    profile_power_limits: bool = Field(default=False, description="Whether its first attempt measures power limits.")
    kind: DecisionKind = KIND
    reason: str = Field(default="", description="Why the policy would choose the batch size.", max_length=1024)


class AdviceCheck(ApiModel):
    """What mode Advise expected when it ended, and what its configuration was measured to save since."""

    batch_size: int = Field(description="Batch size that was advised.", ge=1)
    parameters: ParametersByName = PARAMETERS
    since_recurrence: int = Field(default=0, description="Recurrences from this index on are measured.", ge=0)
    expected_saving_percent: DecimalString | None = Field(
        default=None, description="Expected saving, in percent of the cost in the default configuration."
    )
    low_expected_saving_percent: DecimalString | None = Field(
        default=None, description="Lower bound of its interval of 90 %."
    )
    high_expected_saving_percent: DecimalString | None = Field(default=None, description="Upper bound of it.")
    measured_saving_percent: DecimalString | None = Field(
        default=None, description="Measured saving. Absent until the configuration has reached the target."
    )
    low_measured_saving_percent: DecimalString | None = Field(
        default=None, description="Lower bound of its interval of 90 %."
    )
    high_measured_saving_percent: DecimalString | None = Field(default=None, description="Upper bound of it.")
    recurrences: int = Field(default=0, description="Number of recurrences that were measured.", ge=0)


class RecurringTrainingJobStatus(ApiModel):
    """Observed state of the job."""

    observed_generation: int | None = Field(
        default=None, description="Latest generation of the spec that the operator has processed.", ge=0
    )
    conditions: Conditions = ()
    state: JobState | None = Field(
        default=None,
        description="The state in one word. Waiting: for the next start, a run request, or a pod that starts. Running: "
        "an attempt trains. Failing: no run can start, or the last recurrence failed by all its attempts; failure and "
        "the condition Ready state why. Suspended: spec.suspend is true; an active run continues. Unreachable: no "
        "batch size reaches the target; the condition TargetUnreachable states what would be reached. Complete: all "
        "recurrences of spec.maxRecurrences have ended.",
    )
    failure: str = Field(
        default="",
        description="Reason of the failure: the result of the last attempt, such as Crashed, why no run can start, or "
        "what hinders a pod, such as ImagePullBackOff. Empty if nothing fails.",
        max_length=128,
    )
    active: Annotated[tuple[ActiveRecurrence, ...], Field(max_length=64, json_schema_extra=list_map("name"))] = Field(
        default=(), description="References to the active recurrences."
    )
    next_schedule_time: Time | None = Field(default=None, description="Start of the next run.")
    last_schedule_time: Time | None = Field(
        default=None, description="Latest scheduled time for which a run was started."
    )
    last_missed_time: Time | None = Field(default=None, description="Latest scheduled time whose start was missed.")
    last_run_request: str | None = Field(
        default=None, description="Latest value of spec.runRequest that the operator has processed.", max_length=128
    )
    ended_run_request: str | None = Field(
        default=None,
        description="Latest value of spec.runRequest whose recurrence has ended, retries included. Whoever sets "
        "runRequest waits for this value.",
        max_length=128,
    )
    ended_run_result: Result | None = Field(
        default=None,
        description="Result of that recurrence, written together with endedRunRequest: that of its last attempt, or "
        "Cancelled if it was deleted.",
    )
    failed_run_request: str | None = Field(
        default=None,
        description="Latest value of spec.runRequest whose recurrence has ended with another result than Reached, "
        "written together with endedRunRequest. For conditions of failure that compare one field.",
        max_length=128,
    )
    forgotten: Forgotten | None = Field(
        default=None, description="What spec.policy.forget has made the policy forget. Absent if nothing."
    )
    learning: Learning | None = Field(
        default=None, description="What the policy learns from. Absent before the first attempt has ended."
    )
    counts: Counts = Field(default=Counts(), description="Numbers of recurrences and attempts.")
    best_batch_size: int | None = Field(default=None, description="Batch size with the lowest expected cost.", ge=1)
    best_parameters: ParametersByName = Field(
        default_factory=dict, description="Values of the further parameters with the lowest expected cost."
    )
    arms: Annotated[tuple[ArmStatus, ...], Field(max_length=64, json_schema_extra=ATOMIC)] = Field(
        default=(),
        description="What the policy has learned about each batch size. With further parameters, about at most 64 "
        "combinations: those that ran, and those of the lowest expected cost.",
    )
    next_decision: NextDecision | None = Field(
        default=None,
        description="What would be decided for the next recurrence by what is known now, whether or not "
        "spec.maxRecurrences allows one. A recurrence that runs, and a change of the job, may change it. Absent if no "
        "batch size is left.",
    )
    advice: Advice | None = Field(
        default=None, description="The decision for the next recurrence in mode Advise. Absent in mode Optimize."
    )
    advice_check: AdviceCheck | None = Field(
        default=None,
        description="What the last advice expected, and what was measured since. Absent if mode Advise never ended.",
    )
    frequency_plan: JobFrequencyPlan | None = Field(
        default=None,
        description="The frequency plan of the job's pipeline: of the newest attempt whose ranks registered as one. "
        "Absent without such an attempt.",
    )
    published: CurrentModel | None = Field(
        default=None,
        description="The model that was published last, as its training reported it. Absent without spec.output, and "
        "before an attempt has reached the target.",
    )
    totals: JobTotals | None = Field(default=None, description="Totals of all attempts so far.")
    savings: Savings | None = Field(
        default=None, description="Savings relative to running every recurrence in the default configuration."
    )
    figures: JobFigures | None = Field(
        default=None,
        description="Energy, metric and savings in the columns of kubectl. Absent before a recurrence has ended.",
    )
    recent_recurrences: Annotated[tuple[RecentRecurrence, ...], Field(max_length=10, json_schema_extra=ATOMIC)] = Field(
        default=(),
        description="The 10 latest recurrences with their costs, newest first. The objects of these names have more.",
    )
