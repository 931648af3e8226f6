"""The result of a measurement of power limits: each limit's energy and time, the choice, and its certainty."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from wattloop.errors import InputError, WattloopError
from wattloop.files.atomic_write import open_atomic
from wattloop.files.reading import read_text
from wattloop.message_fields import shown
from wattloop.power.selectors import Measurement, Selector
from wattloop.power.sequential_design import Choice, Mode, Reason, SequentialDesign

logger = logging.getLogger("wattloop")

MAX_FILE_BYTES = 1024 * 1024
EXPECTED = "a profile that a PowerLimitOptimizer has written"


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
            stream.write(self.as_json() + "\n")

    def as_json(self) -> str:
        """The result as JSON, for `parsed_result`."""
        return json.dumps(asdict(self), indent=2)


def read_result(path: str | Path) -> ProfileResult:
    """Read what `ProfileResult.write` has written.

    Raises:
        InputError: The file cannot be read, or is no such result.
    """
    try:
        return parsed_result(read_text(path, MAX_FILE_BYTES, EXPECTED))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(str(path), f"another content ({error})", EXPECTED) from error


def parsed_result(text: str) -> ProfileResult:
    """The result in a JSON text.

    Raises:
        ValueError: It is no such result; also TypeError, KeyError, AttributeError or RecursionError.
    """
    document = json.loads(text)
    measurements = _estimates(document.pop("measurements"))
    return ProfileResult(**document, measurements=measurements)


def stored_result(path: Path, limits_watts: Sequence[float], selector: Selector) -> ProfileResult | None:
    """The result in a file for these limits, with the selector's choice; None without one.

    Args:
        path: The file, which need not exist.
        limits_watts: The limits that the result must have.
        selector: Selects among its measurements.
    """
    if not path.exists():
        return None
    try:
        found = read_result(path)
    except WattloopError as error:
        logger.warning("the power limits are measured again: %s", error)
        return None
    if {each.power_limit_watts for each in found.measurements} != set(limits_watts):
        logger.info("the power limits are measured again: %s has others", path)
        return None
    try:
        chosen = selector.select([each.measurement for each in found.measurements])
    except Exception as error:  # noqa: BLE001 - a user's selector must not end a long training
        logger.warning("the power limits are measured again: the selector failed: %r", error)
        return None
    return replace(found, power_limit_watts=chosen.power_limit_watts, selector=type(selector).__name__)


def _estimates(entries: list[dict[str, Any]]) -> tuple[LimitEstimate, ...]:
    if not entries:
        raise ValueError("no measurement")
    return tuple(_estimate(each) for each in entries)


def _estimate(entry: dict[str, Any]) -> LimitEstimate:
    numbers = [entry[name] for name in ("power_limit_watts", "energy_joules", "time_seconds", "gpus")]
    if not all(isinstance(each, int | float) and 0 < each < math.inf for each in numbers):
        raise ValueError(f"{shown(numbers)} among the measurements")
    intervals = {name: tuple(entry[name]) for name in ("energy_interval_joules", "time_interval_seconds")}
    return LimitEstimate(**{**entry, **intervals})


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
