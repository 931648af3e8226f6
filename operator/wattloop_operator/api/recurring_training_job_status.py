"""The status of a RecurringTrainingJob: progress of learning, cost, savings, and the next run."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.batch_size import DecisionKind, ParametersByName
from wattloop_operator.api.field_types import DecimalString, NonNegativeDecimalString, Time
from wattloop_operator.api.meta import Conditions
from wattloop_operator.api.model import ATOMIC, SET, ApiModel, list_map
from wattloop_operator.api.model_output import CurrentModel

PARAMETERS: dict[str, str] = Field(default_factory=dict, description="Values of the further parameters by name.")
MoneyText = Annotated[str, Field(max_length=36, pattern=r"^-?[0-9]{1,15}(\.[0-9]{1,12})? [A-Z]{3}$")]
"""An amount of money: a decimal number and the ISO 4217 code of its currency, such as "12.34 EUR"."""
RecurrenceName = Annotated[str, Field(min_length=1, max_length=63)]


class JobState(StrEnum):
    """The state of a job in one word."""

    WAITING = "Waiting"
    RUNNING = "Running"
    FAILING = "Failing"
    SUSPENDED = "Suspended"
    UNREACHABLE = "Unreachable"
    COMPLETE = "Complete"


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
    """Recurrences so far, and what all attempts that have ended used."""

    recurrences: int = Field(default=0, description="Number of recurrences started so far.", ge=0)
    reached: int = Field(default=0, description="Number of recurrences that reached the target.", ge=0)
    failed: int = Field(default=0, description="Number of recurrences that ended without reaching the target.", ge=0)
    missed: int = Field(default=0, description="Number of missed starts.", ge=0)
    deleted: int | None = Field(
        default=None,
        description="Number of recurrences that were deleted while they were active, so that nothing is known of them.",
        ge=0,
    )
    lost: int = Field(
        default=0,
        description="Number of recurrences whose observation the database no longer has, as after its loss. Energy, "
        "duration, money and carbon lack what they used.",
        ge=0,
    )
    gpu_energy_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Energy of the GPUs, in joules. Absent before an attempt has ended."
    )
    duration_seconds: NonNegativeDecimalString | None = Field(default=None, description="Duration, in seconds.")
    money: MoneyText | None = Field(
        default=None,
        description="Price of the energy: an amount and the ISO 4217 code of its currency. Absent where the "
        "tariff has no price.",
    )
    carbon_grams: NonNegativeDecimalString | None = Field(
        default=None,
        description="Emissions of the energy, in grams of CO2 equivalent. Absent where the tariff has no intensity.",
    )


class SavingName(StrEnum):
    """What an entry of the savings is about."""

    COST = "Cost"
    LATEST_COST = "LatestCost"
    ENERGY = "Energy"
    TIME = "Time"
    MONEY = "Money"
    CARBON = "Carbon"
    LEARNING_ENERGY = "LearningEnergy"
    LEARNING_TIME = "LearningTime"
    DEFAULT_COST = "DefaultCost"


class Saving(ApiModel):
    """One figure of what the job saved, with its central 90 % interval.

    What was paid is measured, so the interval of a saving is that of the default configuration's expectation. That of
    DefaultCost contains 90 % of later recurrences.
    """

    name: SavingName = Field(
        description="Cost, Energy, Time: saved so far, learning included; negative while learning has cost more than "
        "was saved. LatestCost: saved by the latest five recurrences with the configuration that was learned. Money, "
        "Carbon: price and emissions of the saved energy. LearningEnergy, LearningTime: what trials and the "
        "measurement of power limits used more and took longer than the default configuration, a part of Energy and "
        "Time. DefaultCost: expected cost of one recurrence in the default configuration: start-up and retries "
        "included, at the highest power limit."
    )
    value: DecimalString | None = Field(default=None, description="The expected value. Absent if it is not known yet.")
    low: DecimalString | None = Field(default=None, description="Lower end of the interval.")
    high: DecimalString | None = Field(default=None, description="Upper end of the interval.")
    unit: str = Field(
        description="Unit of the three: percent of the cost in the default configuration, J, s, g of CO2 equivalent, "
        "or the ISO 4217 code of a currency.",
        max_length=16,
    )
    text: str = Field(
        description='The value and its interval as a person reads them, or "not known yet", for the columns of '
        "kubectl.",
        max_length=64,
    )


class RecentRecurrence(ApiModel):
    """Summary of one recurrence."""

    name: RecurrenceName = Field(description="Name of the TrainingRecurrence of the last attempt.")
    index: int = Field(description="Index of the recurrence, from 0.", ge=0)
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
    energy: str = Field(
        default="",
        description='Energy of all attempts in kWh, rounded, or "unknown"; for the columns of kubectl. Empty while the '
        "recurrence is active.",
        max_length=32,
    )
    metric: str = Field(
        default="", description="Last value of the metric, with four digits. Empty if there was none.", max_length=32
    )
    cost_saving_percent: DecimalString | None = Field(
        default=None,
        description="Cost saved, in percent of the expected cost in the default configuration. Absent for a run of the "
        "default configuration, and until it is known.",
    )


class LearnSince(ApiModel):
    """Since when the policy learns, by spec.learnSince."""

    text: str = Field(description="Latest text of spec.learnSince that was carried out.", max_length=128)
    recurrence: int = Field(description="Attempts in recurrences with a lower index are forgotten.", ge=0)


class NextRecurrence(ApiModel):
    """The next recurrence: when it starts, and what would be decided for it by what is known now."""

    time: Time | None = Field(default=None, description="Start of the next run. Absent if it is not known.")
    batch_size: int | None = Field(
        default=None,
        description="Batch size that the policy would choose. Mode Advise does not run it. Absent if no batch size is "
        "left that could run.",
        ge=1,
    )
    parameters: ParametersByName = PARAMETERS
    power_limit_watts: int | None = Field(
        default=None,
        description="Power limit that would be held on each GPU, in watts. Absent for none, or if limits are not "
        "measured yet.",
        ge=1,
    )
    kind: DecisionKind | None = Field(
        default=None,
        description="Kind of the decision, as in spec.decision of a TrainingRecurrence. Advise: what mode Advise "
        "would choose and does not run.",
    )
    reason: str = Field(default="", description="Why the policy would choose this configuration.", max_length=1024)
    cost_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Expected cost of the recurrence, in joules. Absent if it is not known yet."
    )
    low_cost_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Lower bound of the cost of 90 % of such recurrences."
    )
    high_cost_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Upper bound of the cost of 90 % of such recurrences."
    )
    saving_percent: DecimalString | None = Field(
        default=None,
        description="Expected saving of the recurrence, in percent of the cost in the default configuration. Negative "
        "if it is expected to cost more, as a trial may. Absent for the default configuration itself, and if it is not "
        "known yet; unknown states why.",
    )
    low_saving_percent: DecimalString | None = Field(
        default=None, description="Lower bound of the central 90 % interval of savingPercent."
    )
    high_saving_percent: DecimalString | None = Field(
        default=None, description="Upper bound of the central 90 % interval of savingPercent."
    )
    unknown: str = Field(
        default="", description="What is not known of the saving, and why. Empty if all of it is known.", max_length=512
    )


class RunRequestStatus(ApiModel):
    """What became of the values of spec.runRequest."""

    value: str | None = Field(
        default=None, description="Latest value of spec.runRequest that the operator has processed.", max_length=128
    )
    ended: str | None = Field(
        default=None,
        description="Latest value whose recurrence has ended, retries included. Whoever sets spec.runRequest waits for "
        "this value.",
        max_length=128,
    )
    result: Result | None = Field(
        default=None,
        description="Result of that recurrence, written together with ended: that of its last attempt, or Cancelled if "
        "it was deleted.",
    )
    failed: str | None = Field(
        default=None,
        description="Latest value whose recurrence has ended with another result than Reached, written together with "
        "ended. For conditions of failure that compare one field.",
        max_length=128,
    )


class BestConfiguration(ApiModel):
    """The configuration with the lowest expected cost."""

    batch_size: int = Field(description="The batch size.", ge=1)
    parameters: ParametersByName = PARAMETERS


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
    active: Annotated[tuple[RecurrenceName, ...], Field(max_length=64, json_schema_extra=SET)] = Field(
        default=(), description="Names of the TrainingRecurrences that are active."
    )
    last_schedule_time: Time | None = Field(
        default=None, description="Latest scheduled time for which a run was started, or whose start was missed."
    )
    run_request: RunRequestStatus | None = Field(
        default=None, description="What became of the values of spec.runRequest. Absent before there was one."
    )
    learn_since: LearnSince | None = Field(
        default=None, description="Since when the policy learns, by spec.learnSince. Absent: from the first recurrence."
    )
    learning: str = Field(
        default="",
        description="What the policy learns from: how many attempts, since which recurrence, and what counts of those "
        "with another target, template or image. Empty before the first attempt has ended.",
        max_length=1024,
    )
    best: BestConfiguration | None = Field(
        default=None, description="The configuration with the lowest expected cost. Absent before one is known."
    )
    arms: Annotated[tuple[ArmStatus, ...], Field(max_length=64, json_schema_extra=ATOMIC)] = Field(
        default=(),
        description="What the policy has learned about each batch size. With further parameters, about at most 64 "
        "combinations: those that ran, and those of the lowest expected cost.",
    )
    next: NextRecurrence | None = Field(
        default=None,
        description="When the next recurrence starts, and what would be decided for it by what is known now, whether "
        "or not spec.maxRecurrences allows one. A recurrence that runs, and a change of the job, may change it.",
    )
    published: CurrentModel | None = Field(
        default=None,
        description="The model that was published last, as its training reported it. Absent without spec.output, and "
        "before an attempt has reached the target.",
    )
    totals: JobTotals = Field(default=JobTotals(), description="Totals of all recurrences so far.")
    savings: Annotated[tuple[Saving, ...], Field(max_length=16, json_schema_extra=list_map("name"))] = Field(
        default=(),
        description="What the job saved: what the default configuration is expected to take less what was measured. If "
        "the cost of an epoch has changed, as by other data, only recurrences since the change are compared. Default "
        "runs are the baseline and are not compared. Empty before a recurrence has ended.",
    )
    recent_recurrences: Annotated[tuple[RecentRecurrence, ...], Field(max_length=10, json_schema_extra=ATOMIC)] = Field(
        default=(),
        description="The 10 latest recurrences with energy, time and saving, newest first. Their objects have more.",
    )

    @property
    def next_start(self) -> datetime | None:
        """When the next run starts; None if that is not known."""
        return None if self.next is None else self.next.time

    @property
    def last_run_request(self) -> str | None:
        """Latest value of spec.runRequest that was processed; None before there was one."""
        return None if self.run_request is None else self.run_request.value
