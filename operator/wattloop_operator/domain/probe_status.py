"""What the probes of an attempt have used and chosen."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wattloop.wire.training_messages import (
    MAX_CHOSEN_CHARACTERS,
    MAX_PROBED_PARAMETERS,
    MAX_PROBLEM_CHARACTERS,
    MAX_THRESHOLDS,
)
from wattloop_operator.api.field_types import BatchSizeNumber, DecimalString, NonNegativeDecimalString
from wattloop_operator.api.model import ApiModel


class ProbeChoiceStatus(ApiModel):
    """What the training went on with after a probe."""

    threshold: DecimalString = Field(description="The threshold.")
    batch_size: BatchSizeNumber = Field(description="The global batch size.")
    parameters: Annotated[
        tuple[Annotated[str, Field(max_length=MAX_CHOSEN_CHARACTERS)], ...],
        Field(max_length=MAX_PROBED_PARAMETERS),
    ] = Field(default=(), description="Values of the probed parameters, NAME=VALUE.")
    power_limit_watts: int | None = Field(
        default=None, ge=1, description="Power limit of each GPU, in watts. Absent if none is held."
    )
    trials: int = Field(default=0, ge=0, description="Number of trials.")
    combinations: int = Field(default=0, ge=0, description="Number of combinations of the grid.")


class ProbeUsage(ApiModel):
    """What trials have used. It is part of the attempt's usage and cost, and no policy learns from it."""

    trials: int = Field(default=0, ge=0, description="Number of trials.")
    energy_joules: NonNegativeDecimalString = Field(description="Their energy, in joules.")
    time_seconds: NonNegativeDecimalString = Field(description="Their time, in seconds.")


class ProbesStatus(ProbeUsage):
    """What the probes of an attempt have used and chosen."""

    choices: Annotated[tuple[ProbeChoiceStatus, ...], Field(max_length=2 * MAX_THRESHOLDS)] = Field(
        default=(), description="The choice of each probe that ended, in the order of time."
    )
    problem: str = Field(
        default="",
        description="What limited the latest probe: trials that its bounds left out, limits that may not be held, or "
        "energies that are uncertain or not measured. Empty if nothing did.",
        max_length=MAX_PROBLEM_CHARACTERS,
    )
    earlier: ProbeUsage | None = Field(
        default=None,
        description="What trials of earlier processes of the attempt have used, which is included. Absent if the "
        "reporting process is the first that probes.",
    )
