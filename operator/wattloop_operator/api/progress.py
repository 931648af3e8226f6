"""What a running attempt has reported so far: epochs, metric, cumulative energy of its GPUs, measured limits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wattloop.messages import GPU_UUID_PATTERN, MAX_GPU_UUID_CHARACTERS
from wattloop_operator.api.model import ATOMIC, ApiModel
from wattloop_operator.api.quantities import AmountString, DecimalString


class GpuReading(ApiModel):
    """The cumulative counters of one GPU, at the start of the attempt and now."""

    uuid: str = Field(
        description="The GPU's uuid.",
        min_length=1,
        max_length=MAX_GPU_UUID_CHARACTERS,
        pattern=f"^({GPU_UUID_PATTERN})$",
    )
    start_energy_millijoules: int = Field(description="Its energy counter at the start of the attempt.", ge=0)
    energy_millijoules: int = Field(description="Its energy counter now.", ge=0)
    start_time_seconds: DecimalString = Field(description="Clock of the training process at the start, in seconds.")
    time_seconds: DecimalString = Field(description="The same clock at the latest reading.")


class ProfilePoint(ApiModel):
    """What was measured at one power limit."""

    power_limit_watts: int = Field(description="The limit of each GPU, in watts.", ge=1)
    energy_joules: AmountString = Field(description="Energy of all GPUs while it held, in joules.")
    time_seconds: AmountString = Field(description="Time while it held, in seconds.")
    epochs: AmountString = Field(description="Epochs, or the part of one, run while it held.")


class Progress(ApiModel):
    """What the attempt has reported so far."""

    sequence: int = Field(
        default=0, description="Number of the latest report; a report with a lower one changes nothing.", ge=0
    )
    epoch: AmountString | None = Field(default=None, description="Epochs run so far.")
    earlier_epochs: AmountString | None = Field(
        default=None,
        description="How many of them by processes before the one that reports now; absent: it is the first.",
    )
    metric: DecimalString | None = Field(default=None, description="The metric's latest value.")
    evaluations: int = Field(
        default=0, description="How often the process that reports now has evaluated the metric.", ge=0
    )
    consecutive_reached: int = Field(
        default=0, description="How many evaluations in a row, up to the latest, met the threshold.", ge=0
    )
    reached: bool = Field(
        default=False,
        description="Whether the target has been reached: enough evaluations in a row met the threshold.",
    )
    reviewed: bool = Field(
        default=False,
        description="Whether the policy has thought again, once an epoch had shown what it costs; stopCostJoules is "
        "the bound from then on.",
    )
    stop_cost_joules: AmountString | None = Field(
        default=None, description="Cost at which the attempt is stopped since reviewed, in joules; absent: never."
    )
    stop_requested: bool = Field(default=False, description="Whether the training was told to stop.")
    stop_reason: str = Field(default="", description="Why it was told to stop.", max_length=512)
    finished: bool = Field(default=False, description="Whether the training said that it is done.")
    gpus: Annotated[tuple[GpuReading, ...], Field(max_length=1024, json_schema_extra=ATOMIC)] = Field(
        default=(), description="The counters of every GPU of the attempt."
    )
    gpu_product: str = Field(default="", description="Product name of the GPUs.", max_length=128)
    max_power_limit_watts: int | None = Field(
        default=None, description="Sum of the maximum power limits of all GPUs of the attempt, in watts.", ge=1
    )
    power_limit_watts: int | None = Field(
        default=None, description="The power limit held on each GPU now, in watts; absent: none is held.", ge=1
    )
    power_limit_refusal: str = Field(
        default="", description="Why the power limit that was asked for last is not held.", max_length=512
    )
    profile: Annotated[tuple[ProfilePoint, ...], Field(max_length=64, json_schema_extra=ATOMIC)] = Field(
        default=(), description="What was measured at each power limit, where limits were measured."
    )
