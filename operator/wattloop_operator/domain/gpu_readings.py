"""What GPUs and node agents have measured of an attempt so far: part of its progress."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from wattloop.wire.training_messages import (
    GPU_UUID_PATTERN,
    MAX_COUNTER_CHARACTERS,
    MAX_GPU_UUID_CHARACTERS,
    MAX_SCHEDULED_LIMITS,
    MAX_UUID_CHARACTERS,
)
from wattloop_operator.api.field_types import DecimalString, NonNegativeDecimalString, Time
from wattloop_operator.api.model import ApiModel

# Restarts of the processes on one GPU that a late report may still belong to.
MAX_EARLIER_INTERVALS = 4


class RecentPower(ApiModel):
    """Mean power of one GPU up to a report of its process."""

    power_watts: NonNegativeDecimalString = Field(description="Mean power, in watts.")
    seconds: NonNegativeDecimalString = Field(description="Time over which it is the mean, by the GPU's clock.")
    time: Time = Field(description="Time at which the operator received the later report.")
    start_time_seconds: DecimalString = Field(
        description="Clock of the process when it began, in seconds, which tells it from another process."
    )


class CountedInterval(ApiModel):
    """An interval of one GPU's cumulative energy counter and clock, in which processes of the attempt used the GPU."""

    start_energy_millijoules: int = Field(
        description="Energy counter at the start of the interval, in millijoules.", ge=0
    )
    energy_millijoules: int = Field(description="Energy counter at its latest report, in millijoules.", ge=0)
    start_time_seconds: DecimalString = Field(
        description="Clock of the training process at the start of the interval, in seconds."
    )
    time_seconds: DecimalString = Field(description="Clock of the training process at its latest report, in seconds.")
    uncertainty_millijoules: int | None = Field(
        default=None,
        description="Bound of the error of the energy of the interval, in millijoules, if the GPU has no energy "
        "counter and its power was integrated, or if its counter was reset. Absent if a counter measured the energy.",
        ge=0,
    )
    counter: str = Field(
        default="",
        description="Identifies the boot and the load of the driver that counter and clock count from.",
        max_length=MAX_COUNTER_CHARACTERS,
    )

    @property
    def length_seconds(self) -> Decimal:
        """Duration of the interval."""
        return self.time_seconds - self.start_time_seconds


class GpuIntervals(CountedInterval):
    """What the processes of an attempt reported of one GPU: the latest interval, and the earlier ones.

    A process that starts again within the attempt begins a new interval. What others used in between is in none.
    """

    uuid: str = Field(
        description="UUID of the GPU.",
        min_length=1,
        max_length=MAX_GPU_UUID_CHARACTERS,
        pattern=f"^({GPU_UUID_PATTERN})$",
    )
    recent: RecentPower | None = Field(
        default=None,
        description="Mean power between the latest two reports of the process; since it began if there is one, or if "
        "reports come within a second. Absent until one of these takes a second.",
    )
    earlier: tuple[CountedInterval, ...] = Field(
        default=(), description="Earlier ones in order.", max_length=MAX_EARLIER_INTERVALS
    )
    oldest: CountedInterval | None = Field(
        default=None, description="The sum of still earlier intervals, as one interval from zero. Absent if none."
    )
    rank: int = Field(default=0, description="Rank of the process that reported the GPU first.", ge=0)
    place: int = Field(
        default=0,
        description="GPUs of one rank with the same number were reported together; those with different numbers one "
        "after the other, as after a move to another node.",
        ge=0,
    )
    devices: int = Field(default=1, description="Number of GPUs in the largest report with this GPU.", ge=1)
    shared: bool | None = Field(
        default=None,
        description="Whether other processes used the GPU in these intervals, so that the energy is an upper bound. "
        "Absent if that is not known.",
    )

    @property
    def _intervals(self) -> tuple[CountedInterval, ...]:
        return (*(() if self.oldest is None else (self.oldest,)), *self.earlier, self)

    @property
    def used_millijoules(self) -> int:
        """Energy of all intervals."""
        return sum(each.energy_millijoules - each.start_energy_millijoules for each in self._intervals)

    @property
    def used_seconds(self) -> Decimal:
        """Duration of all intervals."""
        return sum((each.length_seconds for each in self._intervals), Decimal(0))

    @property
    def total_uncertainty_millijoules(self) -> int | None:
        """Bound of the error of the energy of all intervals; None if a counter measured it."""
        bounds = [each.uncertainty_millijoules for each in self._intervals if each.uncertainty_millijoules is not None]
        return sum(bounds) if bounds else None


class EpochMark(ApiModel):
    """Energy and time of the attempt's GPUs when the training had run a number of epochs."""

    epoch: NonNegativeDecimalString = Field(description="Epochs run.")
    energy_joules: NonNegativeDecimalString = Field(
        description="Energy of all GPUs since the attempt started, in joules. Agents measure from when the GPUs were "
        "assigned to the pods."
    )
    time_seconds: NonNegativeDecimalString = Field(description="Time since then, in seconds.")


class AgentReadings(ApiModel):
    """What the node agents measured of an attempt whose processes report no GPUs."""

    devices: int = Field(description="Number of GPUs.", ge=1)
    gpu_product: str = Field(default="", description="Product name of the GPUs.", max_length=128)
    max_power_limit_watts: int | None = Field(
        default=None,
        description="Sum of the maximum power limits of the GPUs, in watts. Absent if it is not known.",
        ge=1,
    )
    first: EpochMark = Field(
        description="At the training's first report for which the agents had measured all GPUs. What was used before, "
        "such as the start of the container, counts for no epoch."
    )
    latest: EpochMark = Field(description="At the training's latest report of a new epoch.")


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


class PowerLimitSchedule(ApiModel):
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
