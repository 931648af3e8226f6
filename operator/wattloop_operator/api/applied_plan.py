"""How an attempt and a job use a frequency plan, in their statuses and in that of the plan."""

from pydantic import Field

from wattloop_operator.api.field_types import DecimalString, NonNegativeDecimalString
from wattloop_operator.api.model import ApiModel


class PlanSaving(ApiModel):
    """What a plan saves and costs in time, by measurement."""

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
