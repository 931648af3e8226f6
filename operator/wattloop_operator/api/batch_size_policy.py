"""The policy that chooses the batch size, and the kinds of its decisions."""

from enum import StrEnum

from pydantic import Field


class PolicyName(StrEnum):
    """The policies."""

    THOMPSON_SAMPLING = "ThompsonSampling"
    ZEUS = "Zeus"


class DecisionKind(StrEnum):
    """The kind of a decision."""

    TRIAL = "Trial"
    SAMPLE = "Sample"
    INCUMBENT = "Incumbent"
    PRUNE = "Prune"
    DEFAULT = "Default"
    FIXED = "Fixed"
    ADVISE = "Advise"
    COMPARISON = "Comparison"


KIND: DecisionKind = Field(
    description="Trial: to learn about a batch size. Sample: drawn with the probability of being the cheapest. "
    "Incumbent: the batch size with the lowest expected cost. Prune: a pruning step of the published policy. "
    "Default: the default batch size. Fixed: the same, because of spec.mode Fixed. Advise: the default configuration, "
    "because of spec.mode Advise; reason states the advice. Comparison: the default batch size, whose final metric "
    "spec.objective.target.tolerance needs."
)
