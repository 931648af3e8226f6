"""The result of a measurement of power limits: each limit's energy and time, the choice, and its certainty."""

import json
import logging
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, get_args

from wattloop.errors import InputError, WattloopError
from wattloop.files.atomic_write import open_atomic
from wattloop.files.reading import parse_json, read_text
from wattloop.power.selectors import MeasuredLimit, Selector
from wattloop.power.sequential_design import Choice, Mode, Reason, SequentialDesign
from wattloop.wire.message_fields import Integer, MessageError, Number, NumberRange, OneOf, TruncatedString
from wattloop.wire.wire_form import MaxItems, WireForm

logger = logging.getLogger("wattloop")

MAX_FILE_BYTES = 1024 * 1024
MAX_MEMORY_BYTES = 16 * 1024 * 1024
MAX_LIMITS = 10_000
MAX_NAME_CHARACTERS = 200
EXPECTED = "a profile that a PowerLimitOptimizer has written"
POSITIVE = Number(math.nextafter(0, 1), sys.float_info.max)
INTERVAL = NumberRange(sys.float_info.max)
SHARE = Number(0.0, 1.0)


@dataclass(frozen=True)
class LimitEstimate(WireForm):
    """Energy and time of one sample at a power limit; each interval contains the value with a probability of 95 %."""

    power_limit_watts: Annotated[float, POSITIVE, "The limit of each GPU."]
    energy_joules: Annotated[float, POSITIVE, "Energy of all GPUs."]
    energy_interval_joules: Annotated[tuple[float, float], INTERVAL, "Its interval."]
    time_seconds: Annotated[float, POSITIVE, "Time."]
    time_interval_seconds: Annotated[tuple[float, float], INTERVAL, "Its interval."]
    gpus: Annotated[int, Integer(minimum=1), "Number of GPUs."]
    windows: Annotated[int, Integer(), "Number of windows under this limit; 0 if it was not measured (mode Fitted)."]

    @property
    def measurement(self) -> MeasuredLimit:
        """Energy and time without the intervals."""
        return MeasuredLimit(self.power_limit_watts, self.energy_joules, self.time_seconds, self.gpus)


@dataclass(frozen=True)
class ProfileResult(WireForm):
    """The limits that were measured, and the choice."""

    power_limit_watts: Annotated[float, POSITIVE, "The limit chosen."]
    doubt: Annotated[float, SHARE, "Probability that another limit is better by more than the margin."]
    margin: Annotated[float, SHARE, "Relative loss that does not matter."]
    reason: Annotated[Reason, OneOf(get_args(Reason)), "Why the measurement ended: Certain, or BudgetSpent."]
    selector: Annotated[str, TruncatedString(MAX_NAME_CHARACTERS), "Name of the selector's class."]
    mode: Annotated[Mode, OneOf(get_args(Mode)), "Measured or Fitted."]
    measured_seconds: Annotated[float, Number(0.0, sys.float_info.max), "Duration of all windows."]
    measurements: Annotated[tuple[LimitEstimate, ...], MaxItems(MAX_LIMITS), "By falling power limit."]

    def check(self, place: str) -> None:
        """See `WireForm`."""
        if not self.measurements:
            raise MessageError(f"{place}measurements: found none, expected at least one")

    def write(self, path: str | Path) -> None:
        """Write the result as JSON, for `wattloop power select --profile`.

        Raises:
            OperationError: The file cannot be written.
        """
        with open_atomic(path) as stream:
            stream.write(self.as_json() + "\n")

    def as_json(self) -> str:
        """The result as JSON, for `parsed_result`."""
        return json.dumps(self.to_json(), indent=2)


def read_result(path: str | Path) -> ProfileResult:
    """Read what `ProfileResult.write` has written.

    Raises:
        InputError: The file cannot be read, or is no such result.
    """
    return parsed_result(read_text(path, MAX_FILE_BYTES, EXPECTED), str(path))


def parsed_result(text: str, source: str) -> ProfileResult:
    """The result in a JSON text.

    Raises:
        InputError: It is no such result.
    """
    try:
        return ProfileResult.from_json(parse_json(text, source, EXPECTED, MAX_MEMORY_BYTES))
    except MessageError as error:
        raise InputError(source, f"another content ({error})", EXPECTED) from error


def stored_result(path: Path, limits_watts: Sequence[float], selector: Selector) -> ProfileResult | None:
    """The result in a file for these limits, with the selector's choice; None without one."""
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
