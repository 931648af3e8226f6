"""Probes in a training: other configurations are tried on copies of its state, and the best is used."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wattloop.wire.probe_messages import (
    MAX_PROBE_STEPS,
    MAX_PROBED_PARAMETERS,
    MAX_THRESHOLDS,
    MAX_TRIALS,
)
from wattloop_operator.api.batch_size import ParameterValue
from wattloop_operator.api.field_types import BatchSizeNumber, DecimalString
from wattloop_operator.api.model import ATOMIC, SET, ApiModel, Rule, list_map
from wattloop_operator.api.power_fields import Watts

MAX_COMBINATIONS = 4096
_SIZES = ("(has(self.batchSize) ? size(self.batchSize) : 1)", "(has(self.powerLimits) ? size(self.powerLimits) : 1)")
# CEL cannot fold a list, so each place has a factor.
_COMBINATIONS = " * ".join(
    [
        *_SIZES,
        *(
            f"(has(self.parameters) && size(self.parameters) > {k} ? size(self.parameters[{k}].values) : 1)"
            for k in range(MAX_PROBED_PARAMETERS)
        ),
    ]
)


class ProbedParameterSpec(ApiModel):
    """Values of a parameter to try."""

    name: str = Field(
        description="Name of the parameter, one of spec.parameters.",
        min_length=1,
        max_length=32,
        pattern=r"^[a-z][a-z0-9_]*$",
    )
    values: Annotated[tuple[ParameterValue, ...], Field(min_length=1, max_length=16, json_schema_extra=SET)] = Field(
        description="The values to try. They need not be candidates of the parameter."
    )


class ProbeSettings(ApiModel):
    """When a training probes, and which configurations it tries."""

    rules = (
        Rule(
            "self.at.all(threshold, self.at.exists_one(other, double(other) == double(threshold)))",
            "each threshold once",
            ".at",
        ),
        Rule(
            f"{_COMBINATIONS} >= 2",
            "at least two values of batchSize, of one of parameters, or of powerLimits; a grid of one leaves nothing "
            "to choose",
        ),
        Rule(
            f"{_COMBINATIONS} <= {MAX_COMBINATIONS}",
            f"at most {MAX_COMBINATIONS} combinations; give fewer values",
        ),
    )

    at: Annotated[
        tuple[DecimalString, ...], Field(min_length=1, max_length=MAX_THRESHOLDS, json_schema_extra=ATOMIC)
    ] = Field(
        description="Values of the target's metric at which the training probes, such as ['0.3', '0.5'], in any order: "
        "at the first evaluation at or beyond one, once each."
    )
    batch_size: Annotated[tuple[BatchSizeNumber, ...], Field(max_length=64, json_schema_extra=SET)] = Field(
        default=(), description="Batch sizes to try, of spec.batchSize.candidates. Absent: the one in force."
    )
    parameters: Annotated[
        tuple[ProbedParameterSpec, ...], Field(max_length=MAX_PROBED_PARAMETERS, json_schema_extra=list_map("name"))
    ] = Field(default=(), description="Values of parameters to try. Absent: those in force.")
    power_limits: Annotated[tuple[Watts, ...], Field(max_length=64, json_schema_extra=SET)] = Field(
        default=(),
        description="Power limits of each GPU to try, in watts. One that the device or a GPUPowerPolicy does not allow "
        "is not tried, and status.progress.probes.problem says so. Absent: the one in force.",
    )
    steps: int = Field(default=20, ge=1, le=MAX_PROBE_STEPS, description="Measured optimizer steps of a trial.")
    warm_up_steps: int = Field(
        default=3, ge=0, le=MAX_PROBE_STEPS, description="Steps of a trial before them, which are not measured."
    )
    max_trials: int = Field(
        default=32,
        ge=2,
        le=MAX_TRIALS,
        description="Most trials at one threshold. The configuration in force is tried first, then what differs from "
        "it in one value, then in two, and so on; the rest of the grid is not tried.",
    )
    max_time_percent: int = Field(
        default=10,
        ge=1,
        le=100,
        description="Most time of all trials, in percent of the time that the training itself has taken so far. No "
        "trial starts that would exceed it, by the longest trial so far.",
    )
