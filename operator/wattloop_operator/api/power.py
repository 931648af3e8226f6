"""Limits on the power of a run's GPUs."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from wattloop_operator.api.model import ApiModel, Rule

MAX_WATTS = 10_000


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
        "allows 1.10 times the time.",
        ge=0,
        le=1_000,
    )
    watts: int | None = Field(
        default=None,
        description="Power limit of each GPU with mode Fixed, in watts. It must be within the limits of the device "
        "and of every GPUPowerPolicy of its node.",
        ge=1,
        le=MAX_WATTS,
    )


class FrequencyPlanReference(ApiModel):
    """A reference to the FrequencyPlan that the ranks of a pipeline use."""

    name: str = Field(
        description="Name of a FrequencyPlan in the job's namespace.",
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
    )


class Power(ApiModel):
    """Power limits and clocks of the GPUs."""

    limit: PowerLimit = Field(default=PowerLimit(), description="The power limit of each GPU.")
    frequency_plan_ref: FrequencyPlanReference | None = Field(
        default=None,
        description="Plan of GPU clocks per pipeline stage and instruction, for pipeline-parallel training. This "
        "version does not support it: a job with a plan does not start (condition Ready is False, reason "
        "NotSupported).",
    )
