"""The values that a policy chooses from: batch sizes and further named parameters."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from wattloop_operator.api.batch_size_policy import PolicyName
from wattloop_operator.api.field_types import (
    DNS_LABEL_PATTERN,
    MAX_BATCH_SIZE,
    MAX_JOB_NAME_CHARACTERS,
    BatchSizeNumber,
)
from wattloop_operator.api.model import SET, UNPUBLISHED_DEFAULT, ApiModel, Rule
from wattloop_planner.bandit.configuration import NUMBER_PATTERN

JobName = Annotated[str, Field(min_length=1, max_length=MAX_JOB_NAME_CHARACTERS, pattern=DNS_LABEL_PATTERN)]
MAX_PARAMETERS = 8
MAX_PARAMETER_CHARACTERS = 256
# The value becomes a variable of the training's environment, which cannot hold NUL.
ParameterValue = Annotated[
    str,
    Field(
        description="A value of the parameter, without control characters.",
        min_length=1,
        max_length=MAX_PARAMETER_CHARACTERS,
        pattern=r"^[^\x00-\x1f\x7f]+$",
    ),
]
ParametersByName = Annotated[dict[str, ParameterValue], Field(max_length=MAX_PARAMETERS)]


class BatchSizeScope(StrEnum):
    """Whether a batch size counts the samples of all devices or of one."""

    GLOBAL = "Global"
    PER_DEVICE = "PerDevice"


class LearningRateScaling(StrEnum):
    """How the learning rate depends on the batch size."""

    NONE = "None"
    LINEAR = "Linear"
    SQUARE_ROOT = "SquareRoot"


class BatchSize(ApiModel):
    """The batch sizes to choose from."""

    rules = (
        Rule(
            "!has(self.candidates) || self.default in self.candidates",
            "a default that is one of the candidates; add it to batchSize.candidates",
            ".default",
        ),
    )

    default: BatchSizeNumber = Field(
        description="The batch size in use so far. It is tried first, and savings are relative to it."
    )
    candidates: Annotated[tuple[BatchSizeNumber, ...], Field(min_length=1, max_length=64)] = Field(
        default=(),
        description="The batch sizes that may be tried: 1 to 64 distinct positive integers that include the default. "
        "Absent: the default times powers of two, from a quarter of it to four times it.",
        # The values that it stands for depend on the default.
        json_schema_extra=SET | UNPUBLISHED_DEFAULT,
    )
    scope: BatchSizeScope = Field(
        default=BatchSizeScope.GLOBAL,
        description="Global: a batch size is the number of samples per optimizer step over all devices. PerDevice: "
        "it is the number per device.",
    )
    learning_rate_scaling: LearningRateScaling = Field(
        default=LearningRateScaling.NONE,
        description="Scaling of the learning rate, relative to the default batch size. None: the script scales it, if "
        "at all. Linear: in proportion (plain SGD). SquareRoot: with the square root (Adam and its variants).",
    )
    policy: PolicyName = Field(
        default=PolicyName.THOMPSON_SAMPLING,
        description="Policy that chooses the batch size. ThompsonSampling models the epochs to the target and the cost "
        "per epoch over the batch size. Random samples of what the model considers possible propose trials, and a "
        "batch size is tried only if the expected saving of the next runs exceeds the cost of the trial. It learns "
        "from stopped runs, follows drift, and transfers what it learned to another GPU model. Zeus, for comparison "
        "only: pruning and Gaussian Thompson sampling as published (Zeus, NSDI '23). It explores too much for short "
        "histories, and uses the cost of a run that missed the target as its reward.",
    )
    learn_from: JobName | None = Field(
        default=None,
        description="Name of another RecurringTrainingJob in the namespace whose epochs to the target are the "
        "initial estimate for this job: the same model on other GPUs, or on newer data. Absent: "
        "none.",
    )

    @model_validator(mode="after")
    def _with_candidates(self) -> Self:
        if not self.candidates:
            object.__setattr__(self, "candidates", sizes_around(self.default))
        return self


def sizes_around(default: int) -> tuple[int, ...]:
    """The candidates of a job that names none: a quarter of the default to four times it, in powers of two.

    Example:
        >>> sizes_around(256), sizes_around(3)
        ((64, 128, 256, 512, 1024), (1, 3, 6, 12))
    """
    sizes = (default // 4, default // 2, default, default * 2, default * 4)
    return tuple(size for size in sizes if 1 <= size <= MAX_BATCH_SIZE)


_IS_NUMBER = f"candidate.matches('^{NUMBER_PATTERN}$')"
_ALL_NUMBERS = f"self.candidates.all(candidate, {_IS_NUMBER})"


class ParameterSpec(ApiModel):
    """A further parameter that the training reads from its environment."""

    rules = (
        Rule(
            "self.default in self.candidates",
            "a default that is one of the candidates; add it to the parameter's candidates",
            ".default",
        ),
        Rule(
            f"!({_ALL_NUMBERS}) || self.candidates.all(candidate, "
            "self.candidates.exists_one(other, double(other) == double(candidate)))",
            "each number once, in one notation",
            ".candidates",
        ),
    )

    name: str = Field(
        description="Name of the parameter in lower case, such as dropout. The training reads it as "
        "WATTLOOP_PARAM_DROPOUT.",
        min_length=1,
        max_length=32,
        pattern=r"^[a-z][a-z0-9_]*$",
    )
    default: ParameterValue = Field(
        description="The value in use so far. It is tried first, and savings are relative to it."
    )
    candidates: Annotated[tuple[ParameterValue, ...], Field(min_length=1, max_length=16, json_schema_extra=SET)] = (
        Field(
            description="The values that may be tried: 1 to 16 distinct ones that include the default. A single one "
            "fixes the parameter. The distance of numbers is their ratio where the ratios are more alike than the "
            "differences, as those of 0.03, 0.1, 0.3, and else their difference."
        )
    )
