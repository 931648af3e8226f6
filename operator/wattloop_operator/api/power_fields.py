"""Limits on the power of a run's GPUs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from wattloop_operator.api.field_types import DNS_SUBDOMAIN_PATTERN, NonNegativeDecimalString
from wattloop_operator.api.model import SET, ApiModel, Rule

MAX_WATTS = 10_000
ABSOLUTE_PATH_PATTERN = r"^(/[A-Za-z0-9._=+,:@~-]+)+/?$"
Watts = Annotated[int, Field(ge=1, le=MAX_WATTS)]


class PowerLimitMode(StrEnum):
    """How the power limit is chosen."""

    NONE = "None"
    FIXED = "Fixed"
    AUTO = "Auto"


class PowerLimitSelector(StrEnum):
    """The criterion by which mode Auto selects a power limit."""

    ENERGY = "Energy"
    TIME = "Time"
    COST = "Cost"
    MAX_SLOWDOWN = "MaxSlowdown"


class PowerLimit(ApiModel):
    """The power limit of each GPU."""

    rules = (
        Rule(
            "(self.mode == 'Fixed') == has(self.watts)",
            "watts with mode Fixed, and with no other mode",
            ".watts",
        ),
        Rule(
            "(self.selector == 'MaxSlowdown') == has(self.maxSlowdownPercent)",
            "maxSlowdownPercent with selector MaxSlowdown, and with no other selector",
            ".maxSlowdownPercent",
        ),
    )

    mode: PowerLimitMode = Field(
        default=PowerLimitMode.AUTO,
        description="Auto: measure several power limits during the first epochs of each batch size and hold the best "
        "one. Fixed: hold the power limit in watts. None: set no power limit.",
    )
    selector: PowerLimitSelector = Field(
        default=PowerLimitSelector.COST,
        description="Criterion of mode Auto. Cost: the lowest cost by spec.objective. Energy: the lowest energy. "
        "Time: the shortest time. MaxSlowdown: the lowest power limit that is at most maxSlowdownPercent slower than "
        "the highest one.",
    )
    max_slowdown_percent: int | None = Field(
        default=None,
        description="Maximum slowdown with selector MaxSlowdown, relative to the highest power limit, in percent: 10 "
        "allows 1.10 times the time. Absent with another selector.",
        ge=0,
        le=1_000,
    )
    watts: Watts | None = Field(
        default=None,
        description="Power limit of each GPU with mode Fixed, in watts. It must be within the limits of the device "
        "and of every GPUPowerPolicy of its node. Absent with another mode.",
    )


class FrequencyPlanMode(StrEnum):
    """Whether a pipeline runs under a frequency plan."""

    AUTO = "Auto"
    NONE = "None"


class PlanChoiceRule(StrEnum):
    """The rule by which the point of a frontier is chosen."""

    FASTEST = "Fastest"
    DEADLINE = "Deadline"
    COST = "Cost"


class AfterLastPlan(StrEnum):
    """What follows the last plan of a directory; the client's `plans_then`, capitalised."""

    BEST = "Best"
    FREE = "Free"
    END = "End"


class PlanDirectory(ApiModel):
    """A folder of plan files, which all run in one training."""

    path: str = Field(
        description="Folder with the plan files of wattloop plan or Lowtime, in the training containers.",
        min_length=1,
        max_length=4096,
        pattern=ABSOLUTE_PATH_PATTERN,
    )
    dump_path: str = Field(
        description="Folder for the time and energy of each run, in the training containers, which all ranks and later "
        "attempts share: an attempt goes on at the first plan that it lacks.",
        min_length=1,
        max_length=4096,
        pattern=ABSOLUTE_PATH_PATTERN,
    )
    iterations: int = Field(
        default=10, ge=1, le=1_000_000, description="Iterations measured under each plan, after one that is not."
    )
    after_last: AfterLastPlan = Field(
        default=AfterLastPlan.BEST,
        description="What follows the last plan. Best: the plan of least energy among those that take at most 1 % "
        "longer than the highest clock. Free: free clocks. End: the training ends with exit code 0.",
    )


class BaselineMethod(StrEnum):
    """Who has the same power limit while a baseline is measured."""

    ZEUS_GLOBAL = "ZeusGlobal"
    ZEUS_PER_STAGE = "ZeusPerStage"


class AfterLastLimit(StrEnum):
    """What follows the last power limit of a baseline; the client's `plans_then`, capitalised."""

    FREE = "Free"
    END = "End"


class MeasuredBaseline(ApiModel):
    """Power limits that are measured one after the other in one training, to compare plans with."""

    method: BaselineMethod = Field(
        description="ZeusGlobal: one power limit for all ranks, from the highest down. ZeusPerStage: the same, and "
        "then one for each stage, whose forwards take as long as those of the heaviest stage."
    )
    dump_path: str = Field(
        description="Folder for the time and energy of each run, in the training containers, which all ranks and later "
        "attempts share: an attempt goes on at the first limit that it lacks.",
        min_length=1,
        max_length=4096,
        pattern=ABSOLUTE_PATH_PATTERN,
    )
    limits_watts: Annotated[tuple[Watts, ...], Field(min_length=1, max_length=100, json_schema_extra=SET)] | None = (
        Field(
            default=None,
            description="The limits, in watts. Absent: from the highest that the GPUs and their policies allow down, "
            "in steps of 25 W.",
        )
    )
    iterations: int = Field(
        default=10, ge=1, le=1_000_000, description="Iterations measured at each limit, after one that is not."
    )
    after_last: AfterLastLimit = Field(
        default=AfterLastLimit.FREE,
        description="What follows the last limit. Free: the limit of before. End: the training ends with exit code 0.",
    )


class FrequencyPlanSettings(ApiModel):
    """How the ranks of a training pipeline get clocks."""

    rules = (
        Rule(
            "!has(self.directory) || !has(self.choice) || self.choice == 'Fastest'",
            "no choice with directory, whose plans all run",
            ".choice",
        ),
        Rule(
            "!has(self.baseline) || !has(self.choice) || self.choice == 'Fastest'",
            "no choice with baseline, which runs no plan",
            ".choice",
        ),
        Rule("!has(self.baseline) || !has(self.directory)", "directory or baseline, not both", ".baseline"),
        Rule(
            "(has(self.choice) && self.choice == 'Deadline') == has(self.deadlineSeconds)",
            "deadlineSeconds with choice Deadline, and with no other choice",
            ".deadlineSeconds",
        ),
        Rule(
            "!has(self.deadlineSeconds) || !self.deadlineSeconds.matches('^[0.]*$')",
            "a deadlineSeconds above 0",
            ".deadlineSeconds",
        ),
    )

    mode: FrequencyPlanMode = Field(
        default=FrequencyPlanMode.AUTO,
        description="Auto: measure the instructions of a pipeline whose ranks register, compute its frequency plans, "
        "and run one. With frequencyPlanRef, run that plan without measuring. None: set no clocks.",
    )
    choice: PlanChoiceRule = Field(
        default=PlanChoiceRule.FASTEST,
        description="Rule that chooses among the plans. Fastest: minimum energy among those that take no longer than "
        "maximum clocks. Deadline: minimum energy among those whose iterations take at most deadlineSeconds. Cost: "
        "the lowest cost by spec.objective. With each of them, a slower plan runs while another pipeline is a "
        "straggler that this one would wait for.",
    )
    deadline_seconds: NonNegativeDecimalString | None = Field(
        default=None,
        description="Longest time of an iteration with choice Deadline, in seconds. Absent with another choice.",
    )
    directory: PlanDirectory | None = Field(
        default=None,
        description="Folder of plans that all run in one training, one after the other, instead of one that the "
        "operator chooses. Nothing is profiled. Absent: the operator plans.",
    )
    baseline: MeasuredBaseline | None = Field(
        default=None,
        description="Power limits to measure at free clocks, instead of a plan. Nothing is profiled. Absent: none.",
    )


class FrequencyPlanReference(ApiModel):
    """A reference to the FrequencyPlan that the ranks of a pipeline use."""

    name: str = Field(
        description="Name of a FrequencyPlan in the job's namespace.",
        min_length=1,
        max_length=253,
        pattern=DNS_SUBDOMAIN_PATTERN,
    )


class Power(ApiModel):
    """Power limits and clocks of the GPUs."""

    rules = (
        Rule(
            "!has(self.frequencyPlan) || (has(self.frequencyPlan.mode) && self.frequencyPlan.mode == 'None') || "
            "(has(self.limit) && self.limit.mode == 'None')",
            "limit.mode None with frequencyPlan, because a power limit changes the clocks that a plan sets; or "
            "frequencyPlan.mode None",
            ".limit",
        ),
        Rule(
            "!has(self.frequencyPlanRef) || (has(self.limit) && self.limit.mode == 'None')",
            "limit.mode None with frequencyPlanRef, because a power limit changes the clocks that a plan sets",
            ".limit",
        ),
        Rule(
            "!has(self.frequencyPlanRef) || !has(self.frequencyPlan) || !has(self.frequencyPlan.mode) || "
            "self.frequencyPlan.mode == 'Auto'",
            "frequencyPlan.mode Auto with frequencyPlanRef; or no frequencyPlanRef",
            ".frequencyPlanRef",
        ),
        Rule(
            "!has(self.frequencyPlanRef) || !has(self.frequencyPlan) || !has(self.frequencyPlan.directory)",
            "frequencyPlanRef or frequencyPlan.directory, not both",
            ".frequencyPlanRef",
        ),
        Rule(
            "!has(self.frequencyPlanRef) || !has(self.frequencyPlan) || !has(self.frequencyPlan.baseline)",
            "frequencyPlanRef or frequencyPlan.baseline, not both",
            ".frequencyPlanRef",
        ),
    )

    limit: PowerLimit = Field(default=PowerLimit(), description="The power limit of each GPU.")
    frequency_plan: FrequencyPlanSettings | None = Field(
        default=None,
        description="How the ranks of a training pipeline get clocks. Absent: mode Auto if limit.mode is None, "
        "otherwise mode None.",
    )
    frequency_plan_ref: FrequencyPlanReference | None = Field(
        default=None,
        description="The FrequencyPlan whose clocks the ranks of a training pipeline get. Absent: the operator "
        "computes the plan.",
    )

    @property
    def clocks_by_plan(self) -> FrequencyPlanSettings | None:
        """How ranks get clocks; None if they get none."""
        if self.frequency_plan is None:
            return FrequencyPlanSettings() if self.limit.mode is PowerLimitMode.NONE else None
        return self.frequency_plan if self.frequency_plan.mode is FrequencyPlanMode.AUTO else None
