"""The policy that chooses the batch size: exactly one of those in `PolicyName`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from wattloop_operator.api.field_types import BatchSizeNumber
from wattloop_operator.api.model import SET, ApiModel, exactly_one_of

MAX_SEED = 2**53 - 1


class PolicyName(StrEnum):
    """The policies."""

    THOMPSON_SAMPLING = "thompsonSampling"
    ZEUS = "zeus"
    FIXED = "fixed"

    @property
    def models_cost(self) -> bool:
        """Whether the policy models the cost of each batch size, so that it uses curves and other targets."""
        return self is PolicyName.THOMPSON_SAMPLING


class DecisionKind(StrEnum):
    """The kind of a decision."""

    TRIAL = "Trial"
    SAMPLE = "Sample"
    INCUMBENT = "Incumbent"
    PRUNE = "Prune"
    DEFAULT = "Default"
    ADVISE = "Advise"
    COMPARISON = "Comparison"


KIND: DecisionKind = Field(
    description="Trial: to learn about a batch size. Sample: drawn with the probability of being the cheapest. "
    "Incumbent: the batch size with the lowest expected cost. Prune: a pruning step of the published policy. "
    "Default: the default batch size. Advise: the default configuration, because of spec.mode Advise; reason "
    "states the advice. Comparison: the default batch size, whose final metric spec.objective.metricGuard needs."
)
Seed = Annotated[
    int,
    Field(
        description="Seed of the random draws. The same seed and the same observations give the same decisions.",
        ge=0,
        le=MAX_SEED,
    ),
]


class ThompsonSamplingPolicySpec(ApiModel):
    """The default policy. It tries only what is likely to pay off."""

    window: int | None = Field(
        default=None,
        description="Number of latest observations to use, over all batch sizes; older ones are ignored. Absent: "
        "all; the policy discounts old observations by itself, unless you know better how the data drifts.",
        ge=1,
        le=100_000,
    )
    seed: Seed = 0


class ZeusPolicySpec(ApiModel):
    """The published algorithm (Zeus, NSDI '23), as in its paper, for comparison only."""

    window: int = Field(
        default=0,
        description="Number of latest observations to use for each batch size; 0 uses all.",
        ge=0,
        le=100_000,
    )
    seed: Seed = 0


class FixedPolicySpec(ApiModel):
    """Always the default batch size, to measure the cost of a run without changing it."""


class Forget(ApiModel):
    """A request to forget what was learned, once for each value of the token."""

    token: str = Field(
        description="Any text, such as a date or a commit ID. Each change of the value forgets once.",
        min_length=1,
        max_length=128,
    )
    batch_sizes: Annotated[tuple[BatchSizeNumber, ...], Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="The batch sizes to forget. Absent: all.", json_schema_extra=SET
    )


class PolicyChoice(ApiModel):
    """The policy that chooses the batch size."""

    rules = (exactly_one_of(*PolicyName, example="policy: {thompsonSampling: {}}"),)

    thompson_sampling: ThompsonSamplingPolicySpec | None = Field(
        default=None,
        description="Recommended, and the default. It models the epochs to the target and the cost per epoch over "
        "the batch size. Random samples of what the model considers possible propose trials, and a batch size is tried "
        "only if the expected saving of the next runs exceeds the cost of the trial. It learns from stopped runs, "
        "follows drift, and transfers what it learned to another GPU model.",
    )
    zeus: ZeusPolicySpec | None = Field(
        default=None,
        description="For comparison only: pruning and Gaussian Thompson sampling as published (Zeus, NSDI '23). It "
        "explores too much for short histories, and uses the cost of a run that missed the target as its reward.",
    )
    fixed: FixedPolicySpec | None = Field(
        default=None,
        description="Always the default batch size. Use it to measure the current cost of a job, or if the batch "
        "size must not change. spec.power still chooses the power limit.",
    )
    forget: Forget | None = Field(
        default=None,
        description="A change of its token makes the policy forget the observations and crashes of all or some batch "
        "sizes, after a change of data or code that Wattloop cannot see. The observations stay in the history and the "
        "totals; status.forgotten states what is forgotten. Absent: nothing more.",
    )

    @property
    def name(self) -> PolicyName:
        """The policy that is set."""
        if self.zeus is not None:
            return PolicyName.ZEUS
        if self.fixed is not None:
            return PolicyName.FIXED
        return PolicyName.THOMPSON_SAMPLING
