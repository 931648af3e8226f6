"""How an attempt and a job use a frequency plan, in their statuses and in that of the plan."""

from __future__ import annotations

from pydantic import Field

from wattloop_operator.api.field_types import DecimalString, NonNegativeDecimalString
from wattloop_operator.api.model import ApiModel


class IterationStatus(ApiModel):
    """Time and energy of an iteration of one pipeline: one GPU of each stage, waiting included."""

    time_seconds: NonNegativeDecimalString = Field(description="Time of an iteration, in seconds.")
    energy_joules: NonNegativeDecimalString = Field(description="Energy of an iteration, in joules.")


class RealisedIteration(ApiModel):
    """What iterations under a plan took, as the ranks report it."""

    time_seconds: NonNegativeDecimalString = Field(description="Time of an iteration of the slowest rank, in seconds.")
    energy_joules: NonNegativeDecimalString | None = Field(
        default=None,
        description="Energy of an iteration of one pipeline, the mean over the pipelines, in joules. Absent until "
        "every rank reports it.",
    )


class PlanSaving(ApiModel):
    """What a plan saves and costs in time, by measurement and as planned."""

    saving_percent: DecimalString | None = Field(
        default=None,
        description="Energy that the plan saves, in percent: measured between iterations under the plan and those at "
        "free clocks between them. Negative if the plan takes more. Absent while it is not known yet, and beside a "
        "straggler. It stays if this attempt withdraws the plan.",
    )
    slowdown_percent: DecimalString | None = Field(
        default=None,
        description="Time that the plan costs, in percent, measured likewise. Negative if the plan is faster.",
    )
    saving_error_percent: NonNegativeDecimalString | None = Field(
        default=None,
        description="Standard error of the saving, in points of percent; 1.96 of it on each side are an interval of "
        "95 %. It covers the differences between iterations and the errors of the energy counters.",
    )
    slowdown_error_percent: NonNegativeDecimalString | None = Field(
        default=None, description="Standard error of the slowdown, in points of percent, likewise."
    )
    planned_saving_percent: DecimalString | None = Field(
        default=None,
        description="Energy that the plan would save against maximum clocks by the profile, in percent. It is no "
        "measurement of the plan.",
    )
    planned_slowdown_percent: DecimalString | None = Field(
        default=None,
        description="Time that the plan would cost against maximum clocks by the profile, in percent. Absent beside a "
        "straggler.",
    )


class AppliedFrequencyPlan(PlanSaving):
    """The frequency plan of the attempt's pipeline. Measured values have three digits; the FrequencyPlan has more."""

    name: str = Field(default="", description="Name of the FrequencyPlan. Empty until there is one.", max_length=253)
    mode: str = Field(
        description="Free: the ranks set no clocks. Profile: they measure clocks. Plan: they run the plan.",
        max_length=16,
    )
    reason: str = Field(default="", description="Why the ranks run this plan, or none.", max_length=512)
    problem: str = Field(
        default="",
        description="Why there is no plan for the pipeline, although its profile is complete or the job names a "
        "FrequencyPlan; or why it was withdrawn. Empty otherwise.",
        max_length=512,
    )
    planned: IterationStatus | None = Field(
        default=None, description="An iteration by the plan that the ranks run. Absent while they run none."
    )
    realised: RealisedIteration | None = Field(
        default=None, description="What iterations under that plan took. Absent before every rank has reported one."
    )


class JobFrequencyPlan(ApiModel):
    """The frequency plan of the newest attempt whose ranks registered as a pipeline."""

    recurrence: str = Field(
        description="Name of that TrainingRecurrence, which says what its ranks do.", min_length=1, max_length=63
    )
    name: str = Field(default="", description="Name of the FrequencyPlan. Empty until there is one.", max_length=253)
    saving_percent: DecimalString | None = Field(
        default=None,
        description="Energy that the plan saves, in percent, by measurement. Absent while it is not known yet.",
    )
