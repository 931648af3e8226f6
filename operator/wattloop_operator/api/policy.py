"""Which policy chooses the batch size: exactly one of thompsonSampling, zeus, fixed."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from wattloop_operator.api.model import ApiModel, Rule

MAX_SEED = 2**53 - 1


class PolicyName(StrEnum):
    """The policies."""

    THOMPSON_SAMPLING = "thompsonSampling"
    ZEUS = "zeus"
    FIXED = "fixed"


class ThompsonSamplingPolicy(ApiModel):
    """The default policy: learns epochs and cost of an epoch apart, tries only what is likely to pay back."""

    window: int | None = Field(
        default=None,
        description="Forget what is older than this many observations of all batch sizes together. Leave it out "
        "unless the data drifts in a way you know: the policy forgets by itself.",
        ge=1,
        le=100_000,
    )
    seed: int = Field(
        default=0,
        description="Changes the random draws; the same seed and the same observations give the same decisions.",
        ge=0,
        le=MAX_SEED,
    )


class ZeusPolicy(ApiModel):
    """The published algorithm (NSDI '23), true to its paper, for comparison only."""

    window: int = Field(
        default=0,
        description="Observations kept of each batch size; 0 keeps all.",
        ge=0,
        le=100_000,
    )
    seed: int = Field(
        default=0,
        description="Changes the random draws; the same seed and the same observations give the same decisions.",
        ge=0,
        le=MAX_SEED,
    )


class FixedPolicy(ApiModel):
    """Always the default batch size: measures what a run costs without changing it."""


class PolicyChoice(ApiModel):
    """Which policy chooses the batch size."""

    rules = (
        Rule(
            "[has(self.thompsonSampling), has(self.zeus), has(self.fixed)].filter(given, given).size() == 1",
            "exactly one of thompsonSampling, zeus, fixed, such as policy: {thompsonSampling: {}}",
        ),
    )

    thompson_sampling: ThompsonSamplingPolicy | None = Field(
        default=None,
        description="Take this one (it is the default). It models the epochs to the target and the cost of an epoch "
        "over the batch size, tries another size only when the expected saving of the coming runs is worth "
        "the trial, learns from stopped runs, follows drift and keeps what holds on another GPU model.",
    )
    zeus: ZeusPolicy | None = Field(
        default=None,
        description="For comparison only: pruning and Gaussian Thompson sampling as published (Zeus, NSDI '23). It "
        "explores more than pays back on short histories, and takes the cost of a run that missed the target "
        "for a reward.",
    )
    fixed: FixedPolicy | None = Field(
        default=None,
        description="Always the default batch size. Take it to measure what a job costs today, or where the batch size "
        "must not change; the power limit is still chosen by spec.power.",
    )

    @property
    def name(self) -> PolicyName:
        """The policy that is given."""
        if self.zeus is not None:
            return PolicyName.ZEUS
        return PolicyName.FIXED if self.fixed is not None else PolicyName.THOMPSON_SAMPLING
