"""The policy that chooses, the kinds of its decisions, and its values: batch sizes and further named parameters."""

import math
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from wattloop_operator.api.field_types import (
    DNS_LABEL_PATTERN,
    MAX_BATCH_SIZE,
    MAX_JOB_NAME_CHARACTERS,
    BatchSizeNumber,
    number_or_text,
)
from wattloop_operator.api.model import SET, UNPUBLISHED_DEFAULT, ApiModel, Rule
from wattloop_operator.api.template_checks import WrongValue
from wattloop_planner.bandit.configuration import MAX_CONFIGURATIONS, NUMBER_PATTERN

JobName = Annotated[str, Field(min_length=1, max_length=MAX_JOB_NAME_CHARACTERS, pattern=DNS_LABEL_PATTERN)]
MAX_PARAMETERS = 8
MAX_PARAMETER_CHARACTERS = 256
# Of a float with more digits the whole part is not exact.
MAX_WHOLE_NUMBER = 10**15
# The value becomes a variable of the training's environment, which cannot hold NUL.
VALUE_PATTERN = r"^[^\x00-\x1f\x7f]+$"
ParameterText = Annotated[
    str,
    Field(
        description="A value of the parameter, without control characters.",
        min_length=1,
        max_length=MAX_PARAMETER_CHARACTERS,
        pattern=VALUE_PATTERN,
    ),
]
ParametersByName = Annotated[dict[str, ParameterText], Field(max_length=MAX_PARAMETERS)]


def parameter_text(value: object) -> object:
    """The text of a value that a user may write as a number, as the training gets it.

    Example:
        >>> parameter_text(0.1), parameter_text(64), parameter_text(2.0), parameter_text("adam")
        ('0.1', '64', '2', 'adam')
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < MAX_WHOLE_NUMBER else repr(value)


ParameterValue = Annotated[
    ParameterText,
    BeforeValidator(parameter_text),
    WithJsonSchema(
        number_or_text(
            description="A value of the parameter: a number, or a text without control characters.",
            minLength=1,
            maxLength=MAX_PARAMETER_CHARACTERS,
            pattern=VALUE_PATTERN,
        )
    ),
]


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


class ParameterSpec(ApiModel):
    """A further parameter that the training reads from its environment."""

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


def wrong_parameters(parameters: Sequence[ParameterSpec], batch_size: BatchSize) -> WrongValue | None:
    """The first of a job's parameters that a policy cannot choose; None if there is none.

    The chart's admission policy has the same sentences: a rule of the schema sees no value that may be a number.

    Example:
        >>> size = BatchSize(default=32)
        >>> str(wrong_parameters([ParameterSpec(name="dropout", default=0.3, candidates=(0.1, 0.2))], size))
        "spec.parameters[0].default: found '0.3', expected one of the parameter's candidates; add it to them"
    """
    for index, each in enumerate(parameters):
        place: tuple[str | int, ...] = ("parameters", index)
        if each.default not in each.candidates:
            return WrongValue((*place, "default"), each.default, "one of the parameter's candidates; add it to them")
        numbers = [float(text) if re.fullmatch(NUMBER_PATTERN, text) else None for text in each.candidates]
        if None not in numbers and len(set(numbers)) < len(numbers):
            return WrongValue((*place, "candidates"), list(each.candidates), "each number once, in one notation")
        if batch_size.policy is PolicyName.ZEUS and len(each.candidates) > 1:
            expected = (
                "one candidate, because batchSize.policy Zeus chooses the batch size alone; or batchSize.policy "
                "ThompsonSampling"
            )
            return WrongValue((*place, "candidates"), list(each.candidates), expected)
    combinations = len(batch_size.candidates) * math.prod(len(each.candidates) for each in parameters)
    if combinations <= MAX_CONFIGURATIONS:
        return None
    expected = f"at most {MAX_CONFIGURATIONS} combinations of batch size and parameters; give fewer candidates"
    return WrongValue(("parameters",), f"{combinations} combinations", expected)
