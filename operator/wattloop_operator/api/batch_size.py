"""What may be chosen for a run: batch sizes and further named parameters."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from wattloop_operator.api.model import ATOMIC, SET, ApiModel, Rule

BatchSizeNumber = Annotated[int, Field(ge=1, le=16_777_216)]
JobName = Annotated[str, Field(min_length=1, max_length=35, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
ParameterValue = Annotated[str, Field(min_length=1, max_length=256)]


class BatchSizeScope(StrEnum):
    """What a batch size counts."""

    GLOBAL = "Global"
    PER_DEVICE = "PerDevice"


class LearningRateScaling(StrEnum):
    """How the learning rate follows the batch size."""

    NONE = "None"
    LINEAR = "Linear"
    SQUARE_ROOT = "SquareRoot"


class BatchSize(ApiModel):
    """The batch sizes to choose from."""

    rules = (
        Rule(
            "self.default in self.candidates",
            "a default that is one of the candidates; add it to batchSize.candidates",
            ".default",
        ),
    )

    default: BatchSizeNumber = Field(
        description="The batch size used so far: the first one tried, and the one that savings are counted against."
    )
    candidates: Annotated[tuple[BatchSizeNumber, ...], Field(min_length=1, max_length=64, json_schema_extra=SET)] = (
        Field(
            description="The batch sizes that may be tried: 1 to 64 different positive integers, the default among "
            "them. Powers of two around the default are a good start."
        )
    )
    scope: BatchSizeScope = Field(
        default=BatchSizeScope.GLOBAL,
        description="Global: a batch size counts the samples of an optimizer step over all devices. PerDevice: those "
        "of one device.",
    )
    learning_rate_scaling: LearningRateScaling = Field(
        default=LearningRateScaling.NONE,
        description="How the learning rate follows the batch size, relative to the default: None: not at all (the "
        "script sees to it). Linear: in proportion (plain SGD). SquareRoot: with the square root (Adam and "
        "its kin).",
    )
    learn_from: JobName | None = Field(
        default=None,
        description="Name of another RecurringTrainingJob of the namespace whose epochs to the target are a first "
        "guess for this one: the same model on other GPUs, or on newer data.",
    )


class Parameter(ApiModel):
    """A further knob that the training reads from the environment."""

    rules = (
        Rule(
            "self.default in self.candidates",
            "a default that is one of the candidates; add it to the parameter's candidates",
            ".default",
        ),
    )

    name: str = Field(
        description="Name of the knob in lower case, such as dropout; the training reads it as WATTLOOP_PARAM_DROPOUT.",
        min_length=1,
        max_length=32,
        pattern=r"^[a-z][a-z0-9_]*$",
    )
    default: ParameterValue = Field(description="The value used so far.")
    candidates: Annotated[tuple[ParameterValue, ...], Field(min_length=1, max_length=16, json_schema_extra=ATOMIC)] = (
        Field(description="The values that may be tried, the default among them.")
    )
