"""The moments at which an energy counter advances."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edge:
    """A step of the counter.

    Attributes:
        earliest_seconds: Lower bound of the time of the step.
        latest_seconds: Upper bound of the time of the step.
        energy_millijoules: The counter after the step: all energy used until the step.
    """

    earliest_seconds: float
    latest_seconds: float
    energy_millijoules: int

    @property
    def time_seconds(self) -> float:
        """The middle of the interval that contains the step."""
        return (self.earliest_seconds + self.latest_seconds) / 2

    @property
    def uncertainty_seconds(self) -> float:
        """Half of the length of that interval."""
        return (self.latest_seconds - self.earliest_seconds) / 2
