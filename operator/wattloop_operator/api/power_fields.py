"""Power limits and clocks of a run's GPUs, and how an attempt uses a frequency plan, in statuses."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from wattloop_operator.api.field_types import (
    DNS_SUBDOMAIN_PATTERN,
    SECONDS_OF_YEAR,
    DecimalString,
    NonNegativeDecimalString,
)
from wattloop_operator.api.model import ApiModel, Rule

MAX_WATTS = 10_000
Watts = Annotated[int, Field(ge=1, le=MAX_WATTS)]


class PowerMode(StrEnum):
    """How the power limit is chosen."""

    NONE = "None"
    FIXED = "Fixed"
    AUTO = "Auto"


class PowerSelector(StrEnum):
    """The criterion by which mode Auto selects a power limit."""

    ENERGY = "Energy"
    COST = "Cost"
    MAX_SLOWDOWN = "MaxSlowdown"


class PlanChoiceRule(StrEnum):
    """The rule by which the point of a frontier is chosen."""

    FASTEST = "Fastest"
    DEADLINE = "Deadline"
    COST = "Cost"


class FrequencyPlanSettings(ApiModel):
    """How the ranks of a training pipeline get clocks."""

    rules = (
        Rule(
            "(has(self.choice) && self.choice == 'Deadline') == "
            "(has(self.deadlineSeconds) && double(self.deadlineSeconds) > 0.0)",
            "a deadlineSeconds above 0 with choice Deadline, and with no other choice",
            ".deadlineSeconds",
        ),
    )

    name: str | None = Field(
        default=None,
        description="Name of a FrequencyPlan in the job's namespace, which the ranks run without measuring. Absent: "
        "the operator measures the instructions of the pipeline, computes its plans, and runs one.",
        min_length=1,
        max_length=253,
        pattern=DNS_SUBDOMAIN_PATTERN,
    )
    choice: PlanChoiceRule = Field(
        default=PlanChoiceRule.FASTEST,
        description="Rule that chooses among the plans. Fastest: minimum energy among those that take no longer than "
        "maximum clocks. Deadline: minimum energy among those whose iterations take at most deadlineSeconds. Cost: "
        "the lowest cost by spec.objective. With each of them, a slower plan runs while another pipeline is a "
        "straggler that this one would wait for.",
    )
    deadline_seconds: float = Field(
        default=0,
        description="Longest time of an iteration with choice Deadline, in seconds. 0 with another choice.",
        ge=0,
        le=SECONDS_OF_YEAR,
    )


class Power(ApiModel):
    """Power limits and clocks of the GPUs."""

    rules = (
        Rule("(self.mode == 'Fixed') == has(self.watts)", "watts with mode Fixed, and with no other mode", ".watts"),
        Rule(
            "(self.selector == 'MaxSlowdown') == has(self.maxSlowdownPercent)",
            "maxSlowdownPercent with selector MaxSlowdown, and with no other selector",
            ".maxSlowdownPercent",
        ),
        Rule(
            "!has(self.frequencyPlan) || self.mode == 'None'",
            "mode None with frequencyPlan, because a power limit changes the clocks that a plan sets",
            ".mode",
        ),
    )

    mode: PowerMode = Field(
        default=PowerMode.AUTO,
        description="Auto: measure several power limits during the first epochs of each batch size and hold the best "
        "one. Fixed: hold the power limit in watts. None: set no power limit; ranks that register as a training "
        "pipeline then run a frequency plan.",
    )
    selector: PowerSelector = Field(
        default=PowerSelector.COST,
        description="Criterion of mode Auto. Cost: the lowest cost by spec.objective. Energy: the lowest energy. "
        "MaxSlowdown: the lowest power limit that is at most maxSlowdownPercent slower than the highest one.",
    )
    max_slowdown_percent: int | None = Field(
        default=None,
        description="Maximum slowdown with selector MaxSlowdown, relative to the highest power limit, in percent: 10 "
        "allows 1.10 times the time, and 0 none. Absent with another selector.",
        ge=0,
        le=1_000,
    )
    watts: Watts | None = Field(
        default=None,
        description="Power limit of each GPU with mode Fixed, in watts. It must be within the limits of the device "
        "and of every GPUPowerPolicy of its node. Absent with another mode.",
    )
    frequency_plan: FrequencyPlanSettings | None = Field(
        default=None,
        description="How the ranks of a training pipeline get clocks; only with mode None. Absent with mode None: "
        "those of the plan that the operator chooses as Fastest. Ranks that do not register as a pipeline get none.",
    )

    @property
    def clocks_by_plan(self) -> FrequencyPlanSettings | None:
        """How ranks that register as a pipeline get clocks; None if they get none."""
        return (self.frequency_plan or FrequencyPlanSettings()) if self.mode is PowerMode.NONE else None

    @property
    def named_plan(self) -> str | None:
        """The name of the FrequencyPlan that the ranks of a pipeline run; None if the operator plans."""
        return None if self.frequency_plan is None else self.frequency_plan.name


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
