"""How much power the GPUs of a run may draw."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from wattloop_operator.api.model import ApiModel, Rule

MAX_WATTS = 10_000


class PowerLimitMode(StrEnum):
    """Who chooses the power limit."""

    NONE = "None"
    FIXED = "Fixed"
    AUTO = "Auto"


class PowerLimitSelector(StrEnum):
    """What the chosen power limit is best for."""

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
        description="Auto: measure a few limits during the first epochs of each batch size and hold the best one. "
        "Fixed: hold the limit that watts names. None: leave the GPUs alone.",
    )
    selector: PowerLimitSelector = Field(
        default=PowerLimitSelector.COST,
        description="What is best, with mode Auto. Cost: the least cost of spec.objective. Energy: the least energy. "
        "Time: the least time. MaxSlowdown: the lowest limit that is slower than the highest by at most "
        "maxSlowdownPercent.",
    )
    max_slowdown_percent: int | None = Field(
        default=None,
        description="How much slower than at the highest limit a run may be with selector MaxSlowdown, in percent: 10 "
        "allows 1.10 times the time.",
        ge=0,
        le=1_000,
    )
    watts: int | None = Field(
        default=None,
        description="The limit of each GPU with mode Fixed, in watts, within what the device and every "
        "GPUPowerPolicy of its node allow.",
        ge=1,
        le=MAX_WATTS,
    )


class FrequencyPlanReference(ApiModel):
    """The FrequencyPlan that the ranks of a pipeline follow."""

    name: str = Field(
        description="Name of a FrequencyPlan in the job's namespace.",
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
    )


class Power(ApiModel):
    """How the GPUs' power is held down."""

    limit: PowerLimit = Field(default=PowerLimit(), description="The power limit of each GPU.")
    frequency_plan_ref: FrequencyPlanReference | None = Field(
        default=None,
        description="A plan of GPU clocks per pipeline stage and instruction, for pipeline-parallel training. This "
        "version does not carry it out; a job with one is held back (Ready is False, NotSupported).",
    )
