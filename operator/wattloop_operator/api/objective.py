"""What a run is for and what it costs: the target metric, the weight of energy against time, prices."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from wattloop_operator.api.field_types import DecimalString, NonNegativeDecimalString
from wattloop_operator.api.model import ApiModel


class Direction(StrEnum):
    """Which way a metric gets better."""

    MAXIMIZE = "Maximize"
    MINIMIZE = "Minimize"


class Target(ApiModel):
    """The metric value at which a model is good enough."""

    metric: str = Field(
        description="Name of the metric as the training reports it, such as validation_accuracy.",
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z_][A-Za-z0-9_./-]*$",
    )
    direction: Direction = Field(
        default=Direction.MAXIMIZE,
        description="Maximize: the target is reached at or above the threshold (accuracy). Minimize: at or below it "
        "(loss, error, perplexity).",
    )
    threshold: DecimalString = Field(description="The value to reach, a decimal in quotes such as '0.76'.")
    consecutive_evaluations: int = Field(
        default=1,
        description="How many evaluations in a row must reach the threshold; more than 1 for a noisy metric.",
        ge=1,
        le=100,
    )


class EarlyStop(ApiModel):
    """When a run is given up for being too dear."""

    cost_ratio_percent: int = Field(
        default=200,
        description="A run is stopped when it has cost this many percent of the cheapest known run. Lower saves on bad "
        "batch sizes and risks stopping a run that was about to reach the target; 10000 is as good as never.",
        ge=101,
        le=10_000,
    )


class Price(ApiModel):
    """What electricity costs; shown in status as money, never part of a decision."""

    currency: str = Field(
        description="Currency of the price, an ISO 4217 code such as EUR.", pattern=r"^[A-Z]{3}$", max_length=3
    )
    per_kilowatt_hour: NonNegativeDecimalString = Field(
        description="Price of a kilowatt-hour, a decimal in quotes such as '0.31'."
    )


class Carbon(ApiModel):
    """What electricity emits; shown in status, never part of a decision."""

    grams_per_kilowatt_hour: NonNegativeDecimalString = Field(
        description="Grams of CO2 equivalent of a kilowatt-hour, a decimal in quotes such as '380'."
    )


class Objective(ApiModel):
    """What to reach, and what energy and time are worth against each other."""

    energy_weight_percent: int = Field(
        default=50,
        description="Weight of energy against time in the cost, in percent: 100 saves energy alone, 0 saves time "
        "alone. cost = w*energy + (1-w)*maxPower*time, in joules, with w this weight and maxPower the sum of the "
        "GPUs' maximum power limits.",
        ge=0,
        le=100,
    )
    target: Target = Field(description="The metric value at which a run is done.")
    max_epochs: int = Field(
        default=100,
        description="Epochs after which a run that has not reached the target ends without it.",
        ge=1,
        le=1_000_000,
    )
    early_stop: EarlyStop = Field(
        default=EarlyStop(), description="When a run is given up because it has become too dear."
    )
    price: Price | None = Field(default=None, description="Electricity price, to show costs as money.")
    carbon: Carbon | None = Field(default=None, description="Carbon intensity of the electricity, to show emissions.")
