"""One reading of a GPU, as the agent and the training process take it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class IntegratedEnergy:
    """The energy of a GPU that has no energy counter: the integral of its power, from an arbitrary zero.

    Attributes:
        energy_millijoules: The energy so far.
        estimation_error_millijoules: The part of it for whose time there were no readings of power.
        noise_square_millijoules: Sum of the squares of the errors between two readings, which are independent.
    """

    energy_millijoules: int
    estimation_error_millijoules: float
    noise_square_millijoules: float

    def uncertainty_since(self, begin: "IntegratedEnergy") -> float:
        """Bound, in millijoules, of the error of the energy since an earlier value of the same GPU."""
        return accumulated_error(
            begin.estimation_error_millijoules,
            begin.noise_square_millijoules,
            self.estimation_error_millijoules,
            self.noise_square_millijoules,
        )


def accumulated_error(begin_error: float, begin_square: float, end_error: float, end_square: float) -> float:
    """The error that has accumulated between two moments, of errors that add up and of squares of independent ones.

    Example:
        >>> accumulated_error(5.0, 7.0, 8.0, 23.0)
        7.0
    """
    return end_error - begin_error + math.sqrt(max(end_square - begin_square, 0.0))


class OtherUse(NamedTuple):
    """What is known of processes of others on a GPU, so that its energy is not one program's alone.

    Attributes:
        seen_seconds: System monotonic clock when one was last seen; None if none was.
        seen: Which were seen then.
        unknown: Why others may use the GPU unseen; empty if they would be seen.
    """

    seen_seconds: float | None = None
    seen: str = ""
    unknown: str = ""

    def shifted(self, offset_seconds: float) -> "OtherUse":
        """The same on a clock that is ahead by an offset."""
        seconds = self.seen_seconds
        return self._replace(seen_seconds=None if seconds is None else seconds + offset_seconds)

    def since(self, seconds: float) -> bool | None:
        """Whether others have used the GPU since this time of the monotonic clock; None if that is not known."""
        if self.seen_seconds is not None and self.seen_seconds >= seconds:
            return True
        return None if self.unknown else False


def any_shared(intervals: Iterable[bool | None]) -> bool | None:
    """Whether a GPU was shared in one of some intervals; None if that is not known.

    Example:
        >>> any_shared([True, None]), any_shared([False, None]), any_shared([False, False])
        (True, None, False)
    """
    known = tuple(intervals)
    return True if any(known) else None if None in known else False


NOT_ASKED = OtherUse(unknown="the processes on the GPU were not asked for")


class GpuReading(NamedTuple):
    """One reading of a GPU; a tuple, since each sampling makes one for each GPU.

    Attributes:
        begin_seconds: System monotonic clock just before the call of the counter.
        end_seconds: The same just after.
        energy_millijoules: The counter; None if it was not read, or the GPU has none.
        instant_watts: The last value of the power sensor just after the call of the counter, not averaged if
            possible; None if not read or not reported.
        power_watts: Power draw as NVML reports it, from Ampere on the mean of the last second; None if not read or
            not reported.
        clock_seconds: Clock over which energy is integrated: the system's, or the simulator's.
        product: The GPU's model; empty if not read.
        problem: Why a value that the GPU otherwise reports is missing; empty if none is.
        integrated: The energy of a GPU without a counter, as the agent has it; None if it has a counter, or the agent
            was not asked.
        counter: Identifies what counter and clock count from: the boot and the load of the driver; empty if not known.
        others: What is known of processes of others on the GPU.
    """

    uuid: str
    begin_seconds: float
    end_seconds: float
    energy_millijoules: int | None
    instant_watts: float | None
    power_watts: float | None = None
    clock_seconds: float = 0.0
    product: str = ""
    problem: str = ""
    integrated: IntegratedEnergy | None = None
    counter: str = ""
    others: OtherUse = NOT_ASKED

    @property
    def cumulative_millijoules(self) -> int:
        """The counter, or what the agent has integrated in place of one; the reading has one of the two."""
        if self.energy_millijoules is not None:
            return self.energy_millijoules
        assert self.integrated is not None, "the reading has an energy"
        return self.integrated.energy_millijoules

    def uncertainty_since(self, begin: "GpuReading") -> float | None:
        """Bound, in millijoules, of the error of integrated energy since an earlier reading; None: by a counter."""
        if self.energy_millijoules is not None or self.integrated is None or begin.integrated is None:
            return None
        return self.integrated.uncertainty_since(begin.integrated)
