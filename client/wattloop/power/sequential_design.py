"""Decides which power limit to measure next, and when the choice is certain enough.

A sequential design: after each window, random profiles are drawn from the posterior of
`wattloop.power.estimation`. The doubt is the share of them in which another limit is better than the
choice by more than the margin. The limit on whose value the doubt depends most is measured next, in runs
of 1, 2, 4, … windows, so that the GPU settles at the temperature of a limit that matters.

The design is a function of the windows, so ranks that measure with the same totals hold the same limits.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from wattloop.arguments import number_between
from wattloop.errors import UsageError
from wattloop.power.estimation import ProfileEstimate, estimate_profile
from wattloop.power.selectors import MaxSlowdown, MeasuredLimit, Selector, comparison
from wattloop.power.windows import PowerWindow, Totals, WindowRecorder
from wattloop.wire.training_messages import LimitMeasurement

Mode = Literal["Measured", "Fitted"]
Reason = Literal["Certain", "BudgetSpent"]

DRAWS = 300
# The draws cannot tell smaller probabilities.
MIN_DOUBT = 0.01
LIMITS_OF_A_FIT = 4
MAX_RUN_WINDOWS = 8
MAX_LIMITS = 9


@dataclass(frozen=True)
class Requirements:
    """When to stop.

    Attributes:
        margin: Relative loss that does not matter, 0 to 1.
        max_doubt: Stop once the probability that another limit is better by more than the margin is at
            most this, from 0.01 to below 1.
        budget_seconds: Stop after this much time in windows.

    Raises:
        UsageError: A value is out of range.
    """

    margin: float = 0.02
    max_doubt: float = 0.05
    budget_seconds: float = 900.0

    def __post_init__(self) -> None:
        number_between(self.margin, "the margin", 0, 1, "from 0 to 1, such as 0.02 for 2 %")
        expected = f"from {MIN_DOUBT} to below 1, such as 0.05"
        number_between(self.max_doubt, "max_doubt", MIN_DOUBT, math.nextafter(1, 0), expected)
        smallest = math.nextafter(0, 1)
        number_between(self.budget_seconds, "budget_seconds", smallest, math.inf, "positive and finite")


@dataclass(frozen=True)
class Choice:
    """The choice after the windows so far.

    Attributes:
        power_limit_watts: The limit selected from the most probable profile; of a selector with a bound, a higher
            one unless the bound is kept with a doubt of at most `Requirements.max_doubt`.
        next_watts: The limit to measure to reduce the doubt.
    """

    power_limit_watts: float
    doubt: float
    next_watts: float
    estimate: ProfileEstimate


class SequentialDesign:
    """A measurement of power limits in progress.

    Hold `limit_watts` and call `step_done` after each step. If that returns True, read the totals, pass them to
    `add_totals`, and hold `limit_watts`, which may have changed. Repeat until `finished`. Then `choice` has the result.

    Args:
        limits_watts: The limits that may be chosen, at least one, each once.
        gpus: Number of GPUs whose energy the windows have.
        selector: Selects among the measurements.
        mode: Measured: each limit is measured. Fitted: four limits first, others if they are uncertain.
        requirements: When to stop.
        max_windows: After so many windows no limit is repeated any more.

    Raises:
        UsageError: There is no limit, or the mode does not exist.
    """

    def __init__(
        self,
        limits_watts: Sequence[float],
        gpus: int,
        selector: Selector,
        mode: Mode = "Measured",
        requirements: Requirements = Requirements(),
        *,
        max_windows: float = math.inf,
    ) -> None:
        if mode not in get_args(Mode):
            raise UsageError(f"the mode is {mode!r}; it must be one of {', '.join(get_args(Mode))}")
        if not limits_watts:
            raise UsageError("there is no power limit to measure; at least one is needed")
        self.limits_watts = tuple(sorted(limits_watts, reverse=True))
        self.mode = mode
        self.requirements = requirements
        self.max_windows = max_windows
        self.windows: list[PowerWindow] = []
        self.choice: Choice | None = None
        self.reason: Reason | None = None
        self._gpus = gpus
        self._selector = selector
        self._fitted = mode == "Fitted"
        self._planned = [self.limits_watts[index] for index in first_pass(len(self.limits_watts), self._fitted)]
        self._runs = dict.fromkeys(self.limits_watts, 0)
        self.recorder = WindowRecorder(self.limit_watts)

    @property
    def selector_name(self) -> str:
        """Name of the selector's class."""
        return type(self._selector).__name__

    @property
    def finished(self) -> bool:
        """Whether every limit has been measured, and the choice is certain or may take no more windows."""
        return self.reason is not None or (self.choice is not None and len(self.windows) >= self.max_windows)

    @property
    def limit_watts(self) -> float:
        """The limit to hold now: the next to measure or, at the end, the choice."""
        if self.reason is not None and self.choice is not None:
            return self.choice.power_limit_watts
        return self._planned[0]

    def step_done(self, samples: float) -> bool:
        """Count one optimizer step on this number of samples; returns whether to read the totals now."""
        return self.recorder.step_done(samples)

    def add_totals(self, totals: Totals) -> None:
        """Begin a window with these totals, end it, or estimate how many more steps it needs; raises as `add`."""
        window = self.recorder.add_totals(totals)
        if window is not None:
            self.add(window)
            self.recorder = WindowRecorder(self.limit_watts)

    def restart_window(self) -> None:
        """Discard the current window and begin it again: the limit may not have been held for a moment."""
        self.recorder.restart()

    def measurements(self, samples_per_epoch: float) -> tuple[LimitMeasurement, ...]:
        """The limits measured so far, in descending order.

        After the first pass, energy and time are those at the temperature that the GPUs settle at.
        """
        by_limit: dict[float, list[PowerWindow]] = defaultdict(list)
        for window in self.windows:
            by_limit[window.power_limit_watts].append(window)
        settled = [] if self.choice is None else self.choice.estimate.measurements()
        estimates = {each.power_limit_watts: each for each in settled}
        found = []
        for watts in sorted(by_limit, reverse=True):
            windows, estimate = by_limit[watts], estimates.get(watts)
            samples = sum(each.samples for each in windows)
            if estimate is None:
                energy = sum(each.energy_joules for each in windows)
                time = sum(each.time_seconds for each in windows)
            else:
                energy, time = estimate.energy_joules * samples, estimate.time_seconds * samples
            found.append(LimitMeasurement(watts, energy, time, samples / samples_per_epoch))
        return tuple(found)

    def add(self, window: PowerWindow) -> None:
        """Add a completed window at `limit_watts`.

        Raises:
            UsageError: The selector returns what is not one of the measurements.
        """
        self.windows.append(window)
        self._planned.pop(0)
        measured = {each.power_limit_watts for each in self.windows}
        if self._planned and any(limit not in measured for limit in self._planned):
            return
        self.choice = self._choose()
        certain = self.choice.doubt <= self.requirements.max_doubt
        if certain and self.choice.power_limit_watts in measured:
            self.reason = "Certain"
        elif sum(each.time_seconds for each in self.windows) >= self.requirements.budget_seconds:
            self.reason = "BudgetSpent"
        elif certain:
            # A limit between measured ones is chosen only after the curve has been checked there.
            self._planned = [self.choice.power_limit_watts]
        elif not self._planned:
            run = min(2 ** self._runs[self.choice.next_watts], MAX_RUN_WINDOWS)
            self._runs[self.choice.next_watts] += 1
            self._planned = [self.choice.next_watts] * run

    def _choose(self) -> Choice:
        estimate = estimate_profile(self.limits_watts, self.windows, self._gpus, fitted=self._fitted)
        # The seed makes the choice a function of the windows.
        draws = list(estimate.draws(DRAWS, seed=len(self.windows)))
        place = _selected(self._selector, estimate.measurements())
        place = _within_bound(self._selector, place, draws, self.requirements.max_doubt)
        is_worse = comparison(self._selector)
        worse = [is_worse(draw[place], draw, self.requirements.margin) for draw in draws]
        doubt = sum(worse) / DRAWS
        critical = _most_critical(draws, worse) if 0 < sum(worse) < DRAWS else place
        return Choice(self.limits_watts[place], doubt, self.limits_watts[critical], estimate)


def limits_to_measure(min_watts: float, max_watts: float, at_most: int = MAX_LIMITS) -> tuple[float, ...]:
    """The limits to measure: from the maximum down in steps of 25 W, or of a multiple of it for at most so many limits.

    Returns:
        Limits in descending order. The maximum is first, so that the default configuration is always
        measured.

    Example:
        >>> limits_to_measure(100, 250)
        (250.0, 225.0, 200.0, 175.0, 150.0, 125.0, 100.0)
    """
    width = max_watts - min_watts
    step = 25.0 * max(1, math.ceil(width / 25.0 / (at_most - 1)))
    return tuple(max_watts - step * index for index in range(int(width // step) + 1))


def first_pass(limits: int, fitted: bool) -> list[int]:
    """The order of the first windows, as places in a descending list of limits.

    High and low limits alternate, so that no trend of the temperature resembles one of the limits. The
    maximum, which a GPU holds by default, is first.

    Example:
        >>> first_pass(9, fitted=False)
        [0, 8, 4, 2, 6, 1, 5, 3, 7]
        >>> first_pass(9, fitted=True)
        [0, 8, 3, 5]
    """
    if fitted and limits > LIMITS_OF_A_FIT:
        last = limits - 1
        return [0, last, round(last / 3), round(2 * last / 3)]
    bits = max(1, (limits - 1).bit_length())
    # The order of van der Corput's sequence: by the reversed bits of the place.
    return sorted(range(limits), key=lambda place: int(f"{place:0{bits}b}"[::-1], 2))


def _selected(selector: Selector, measurements: Sequence[MeasuredLimit]) -> int:
    chosen = selector.select(measurements)
    for place, measurement in enumerate(measurements):
        if measurement is chosen or measurement == chosen:
            return place
    raise UsageError(
        f"select of {type(selector).__name__} returned {chosen!r}; it must return one of the measurements that it gets"
    )


def _within_bound(selector: Selector, place: int, draws: Sequence[Sequence[MeasuredLimit]], max_doubt: float) -> int:
    """The selected place, or the next one of a higher limit that keeps the selector's bound without much doubt."""
    if not isinstance(selector, MaxSlowdown):
        return place
    while place > 0 and sum(not selector.keeps_bound(draw[place], draw) for draw in draws) > max_doubt * len(draws):
        place -= 1
    return place


def _most_critical(draws: Sequence[Sequence[MeasuredLimit]], worse: Sequence[bool]) -> int:
    """The place whose energy or time differs most between draws with and without a better limit."""
    with_better = [draw for draw, is_so in zip(draws, worse, strict=True) if is_so]
    without = [draw for draw, is_so in zip(draws, worse, strict=True) if not is_so]

    def difference(place: int) -> float:
        sums = [
            (
                sum(draw[place].energy_joules for draw in some) / len(some),
                sum(draw[place].time_seconds for draw in some) / len(some),
            )
            for some in (with_better, without)
        ]
        (energy, time), (other_energy, other_time) = sums
        return abs(energy / other_energy - 1) + abs(time / other_time - 1)

    return max(range(len(draws[0])), key=difference)
