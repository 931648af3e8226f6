"""The cost of a training run, in joules: a weighted sum of energy and time.

Zeus (NSDI '23), equation 2: ``C = η·ETA + (1−η)·MaxPower·TTA``. Costs are always computed from the
stored energy and time, so that a change of η applies to the whole history.
"""

from dataclasses import dataclass

from wattloop.errors import UsageError


@dataclass(frozen=True)
class CostModel:
    """The weights of energy and time.

    Attributes:
        eta: Weight of energy, from 0 (only time) to 1 (only energy).
        max_power_watts: Sum of the maximum power limits of all GPUs of the job, in watts. Converts
            seconds to joules.

    Raises:
        UsageError: eta is outside 0 … 1, or the maximum power is not positive.

    Example:
        >>> CostModel(eta=0.5, max_power_watts=300).cost_joules(energy_joules=1000, time_seconds=10)
        2000.0
    """

    eta: float
    max_power_watts: float

    def __post_init__(self) -> None:
        if not 0 <= self.eta <= 1:
            raise UsageError(f"eta is {self.eta}; the weight of energy must be from 0 to 1")
        if not 0 < self.max_power_watts < float("inf"):
            raise UsageError(f"the maximum power is {self.max_power_watts} W; it must be positive and finite")

    def cost_joules(self, energy_joules: float, time_seconds: float) -> float:
        """Cost in joules of a run that took this energy and time."""
        return self.eta * energy_joules + (1 - self.eta) * self.max_power_watts * time_seconds
