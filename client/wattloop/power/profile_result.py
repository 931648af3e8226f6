"""The result of a measurement of power limits: each limit's energy and time, the choice, and its certainty."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from wattloop.files.atomic_write import open_atomic
from wattloop.power.selectors import Measurement
from wattloop.power.sequential_design import Choice, Mode, Reason, SequentialDesign


@dataclass(frozen=True)
class LimitEstimate:
    """Energy and time of one sample at a power limit; each interval contains the value with a probability of 95 %.

    Attributes:
        power_limit_watts: The limit of each GPU.
        energy_joules: Energy of all GPUs.
        energy_interval_joules: Its interval.
        time_seconds: Time.
        time_interval_seconds: Its interval.
        gpus: Number of GPUs.
        windows: Number of windows under this limit; 0 if it was not measured (mode Fitted).
    """

    power_limit_watts: float
    energy_joules: float
    energy_interval_joules: tuple[float, float]
    time_seconds: float
    time_interval_seconds: tuple[float, float]
    gpus: int
    windows: int

    @property
    def measurement(self) -> Measurement:
        """Energy and time without the intervals."""
        return Measurement(self.power_limit_watts, self.energy_joules, self.time_seconds, self.gpus)


@dataclass(frozen=True)
class ProfileResult:
    """The limits that were measured, and the choice.

    Attributes:
        power_limit_watts: The limit chosen.
        doubt: Probability that another limit is better by more than the margin.
        margin: Relative loss that does not matter.
        reason: Why the measurement ended: Certain, or BudgetSpent.
        selector: Name of the selector's class.
        mode: Measured or Fitted.
        measured_seconds: Duration of all windows.
        measurements: By falling power limit.
    """

    power_limit_watts: float
    doubt: float
    margin: float
    reason: Reason
    selector: str
    mode: Mode
    measured_seconds: float
    measurements: tuple[LimitEstimate, ...]

    def write(self, path: str | Path) -> None:
        """Write the result as JSON, for `wattloop power select --profile`.

        Raises:
            OperationError: The file cannot be written.
        """
        with open_atomic(path) as stream:
            stream.write(json.dumps(asdict(self), indent=2) + "\n")


def profile_result(design: SequentialDesign, choice: Choice, reason: Reason) -> ProfileResult:
    """The result of a design that has ended."""
    estimate = choice.estimate
    windows = Counter(window.power_limit_watts for window in design.windows)
    return ProfileResult(
        power_limit_watts=choice.power_limit_watts,
        doubt=choice.doubt,
        margin=design.requirements.margin,
        reason=reason,
        selector=design.selector_name,
        mode=design.mode,
        measured_seconds=sum(window.time_seconds for window in design.windows),
        measurements=tuple(
            LimitEstimate(
                power_limit_watts=each.power_limit_watts,
                energy_joules=each.energy_joules,
                energy_interval_joules=estimate.energy_interval(place),
                time_seconds=each.time_seconds,
                time_interval_seconds=estimate.time_interval(place),
                gpus=each.gpus,
                windows=windows[each.power_limit_watts],
            )
            for place, each in enumerate(estimate.measurements())
        ),
    )
