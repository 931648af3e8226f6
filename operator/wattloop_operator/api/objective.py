"""The objective of a job: the target metric, the weight of energy against time, and prices."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from wattloop.wire.environment import RunTarget
from wattloop_operator.api.field_types import SECONDS_OF_YEAR, DecimalString, NonNegativeDecimalString
from wattloop_operator.api.metric_words import LOWER_IS_BETTER_PATTERN
from wattloop_operator.api.model import UNPUBLISHED_DEFAULT, ApiModel, Rule

# A client that cannot deliver a report waits for up to 30 s, and reports every quarter of the deadline.
MIN_PROGRESS_DEADLINE_SECONDS = 60
# Fields of a job that its attempts copy.
Epochs = Annotated[int, Field(ge=1, le=1_000_000)]
Percentage = Annotated[int, Field(ge=0, le=100)]
ProgressDeadline = Annotated[int, Field(ge=MIN_PROGRESS_DEADLINE_SECONDS, le=SECONDS_OF_YEAR)]


class Direction(StrEnum):
    """Whether higher or lower values of a metric are better."""

    MAXIMIZE = "Maximize"
    MINIMIZE = "Minimize"


class Target(ApiModel):
    """The metric value at which a model is good enough."""

    rules = (
        Rule(
            f"has(self.direction) || !self.metric.matches(r'{LOWER_IS_BETTER_PATTERN}')",
            "direction: Minimize, because the metric's name says that lower is better (a loss, an error, a "
            "perplexity); or direction: Maximize if higher is better",
            ".direction",
        ),
    )

    metric: str = Field(
        description="Name of the metric as the training reports it, such as validation_accuracy; a name with spaces in "
        "the output goes into spec.reporting.metricName.",
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z_][A-Za-z0-9_./-]*$",
    )
    direction: Direction = Field(
        default=Direction.MAXIMIZE,
        description="Maximize: the target is reached at or above the threshold (accuracy). Minimize: the target is "
        "reached at or below the threshold (loss, error, perplexity). Absent: Maximize, unless a word of the metric's "
        "name says that lower is better (such as loss, error, perplexity, wer, rmse); a direction is then required.",
        # A rule sees an object with its defaults, so a stored default would look like the user's choice.
        json_schema_extra=UNPUBLISHED_DEFAULT,
    )
    threshold: DecimalString = Field(description="The value to reach, a decimal in quotes such as '0.76'.")
    consecutive_evaluations: int = Field(
        default=1,
        description="Number of consecutive evaluations that must meet the threshold. Use more than 1 for a noisy "
        "metric.",
        ge=1,
        le=100,
    )

    @property
    def run_target(self) -> RunTarget:
        """The target in the form that the training process and the policy get."""
        return RunTarget(
            self.metric,
            float(self.threshold),
            maximize=self.direction is Direction.MAXIMIZE,
            consecutive_evaluations=self.consecutive_evaluations,
        )


class EarlyStop(ApiModel):
    """When a run is stopped because it is too expensive."""

    cost_ratio_percent: int = Field(
        default=200,
        description="Upper bound of the cost of a run, in percent of the expected cost of the cheapest known batch "
        "size, for every policy; a policy may stop a trial earlier. A lower value saves more on poor batch sizes, but "
        "may stop a run that is about to reach the target. After a stop of the batch size that is the cheapest known, "
        "or of two others, the next retry has no limit (except for policy zeus), so that a job that has become more "
        "expensive still reaches its target. 10000 practically disables the stop.",
        ge=101,
        le=10_000,
    )


class Price(ApiModel):
    """Price of electricity. It is used to show costs as money, never in a decision."""

    currency: str = Field(
        description="Currency of the price, an ISO 4217 code such as EUR.", pattern=r"^[A-Z]{3}$", max_length=3
    )
    per_kilowatt_hour: NonNegativeDecimalString = Field(
        description="Price of a kilowatt-hour, a decimal in quotes such as '0.31'."
    )


class Carbon(ApiModel):
    """Carbon intensity of electricity. It is used to show emissions, never in a decision."""

    grams_per_kilowatt_hour: NonNegativeDecimalString = Field(
        description="Grams of CO2 equivalent per kilowatt-hour, a decimal in quotes such as '380'."
    )


class MetricGuard(ApiModel):
    """Protects the final metric, which runs may report after the target, against cheaper but worse batch sizes."""

    margin: NonNegativeDecimalString = Field(
        description="By how much the mean final metric of a batch size may be worse than that of the default batch "
        "size, in units of the metric; a decimal in quotes such as '0.005'. A batch size that is worse by more, as "
        "shown by at least 3 of its runs and 2 of the default's, is no longer chosen."
    )


class Objective(ApiModel):
    """The target of a run, and the weight of energy against time."""

    energy_weight_percent: Percentage = Field(
        default=50,
        description="Weight of energy against time in the cost, in percent: 100 minimizes energy alone, 0 minimizes "
        "time alone. cost = w*energy + (1-w)*maxPower*time, in joules, where w is this weight and maxPower is the "
        "sum of the GPUs' maximum power limits.",
    )
    target: Target = Field(description="The metric value that completes a run.")
    max_epochs: Epochs = Field(
        default=100,
        description="Number of epochs after which a run ends even if it has not reached the target.",
    )
    early_stop: EarlyStop = Field(default=EarlyStop(), description="When a run is stopped because it is too expensive.")
    metric_guard: MetricGuard | None = Field(
        default=None,
        description="Excludes batch sizes whose runs end with a worse metric than those of the default batch size. The "
        "final metric of a run is the last one that it reports, also after the target. Absent: reaching the target "
        "is enough.",
    )
    price: Price | None = Field(
        default=None, description="Price of electricity, to show costs as money. Absent: none are shown."
    )
    carbon: Carbon | None = Field(
        default=None, description="Carbon intensity of electricity, to show emissions. Absent: none are shown."
    )
