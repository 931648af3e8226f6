"""The power limits that an attempt has measured, and that are held for it: part of its progress."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wattloop.wire.training_messages import MAX_SCHEDULED_LIMITS, MAX_UUID_CHARACTERS
from wattloop_operator.api.field_types import NonNegativeDecimalString, Time
from wattloop_operator.api.model import ApiModel
from wattloop_operator.domain.gpu_readings import EpochMark

# The bit masks of ranks are bounded. A run of more processes measures no power limits.
MAX_MEASURING_RANKS = 1024
# As many as pods of an attempt.
MAX_LIMIT_PODS = 256


class ProfilePoint(ApiModel):
    """Measurements at one power limit, of all ranks together."""

    power_limit_watts: int = Field(description="Power limit of each GPU, in watts.", ge=1)
    energy_joules: NonNegativeDecimalString = Field(description="Energy of all GPUs at this power limit, in joules.")
    time_seconds: NonNegativeDecimalString = Field(
        description="Time at this power limit, in seconds: that of the slowest rank."
    )
    epochs: NonNegativeDecimalString = Field(
        description="Epochs run at this power limit, fractions included. 1 if there are several ranks, whose "
        "measurements are added up for one epoch."
    )
    ranks: str = Field(
        default="1",
        description="Ranks whose measurements are included, as a bit mask in hexadecimal: the last bit is rank 0.",
        max_length=MAX_MEASURING_RANKS // 4,
        pattern="^[0-9a-f]+$",
    )


class PodPowerLimit(ApiModel):
    """What a node agent did about the power limit that the operator orders for one pod."""

    uid: str = Field(description="UID of the pod.", min_length=1, max_length=MAX_UUID_CHARACTERS)
    min_watts: int | None = Field(
        default=None,
        description="Lowest limit that the pod may request, in watts. Absent if it may request none.",
        ge=0,
    )
    max_watts: int | None = Field(
        default=None,
        description="Highest limit that the pod may request, in watts. Absent if it may request none.",
        ge=0,
    )
    held_watts: int | None = Field(
        default=None, description="Limit held on all GPUs of the pod, in watts. Absent if none is held.", ge=1
    )
    held_since: Time | None = Field(default=None, description="Time since which it is held.")


class LimitWindow(ApiModel):
    """The measurement of a power limit that goes on."""

    power_limit_watts: int = Field(description="Power limit of each GPU, in watts.", ge=1)
    start: EpochMark = Field(description="At the first report of an epoch since which the limit is held on all GPUs.")


class AgentLimits(ApiModel):
    """The power limits that the operator orders the node agents to hold for the attempt's pods."""

    pods: Annotated[tuple[PodPowerLimit, ...], Field(max_length=MAX_LIMIT_PODS)] = Field(
        default=(), description="What the agents did, by pod."
    )
    window: LimitWindow | None = Field(
        default=None, description="The measurement that goes on. Absent unless a power limit is measured."
    )


class LimitScheduleStatus(ApiModel):
    """The power limits that all ranks measure in the same steps, one limit after another."""

    after_epoch: int = Field(description="Epoch after which the first limit begins.", ge=1)
    steps: int = Field(description="Number of optimizer steps of each limit, after one step to settle.", ge=1)
    limits_watts: Annotated[tuple[int, ...], Field(min_length=1, max_length=MAX_SCHEDULED_LIMITS)] = Field(
        description="Power limits of each GPU in their order, in watts."
    )
    choice_epoch: int | None = Field(
        default=None,
        description="Epoch after which all ranks hold the limit that they choose from the sums of their measurements. "
        "Absent before all ranks have measured.",
        ge=1,
    )
