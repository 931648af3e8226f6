"""Quantities as a person reads them: energy, time, money, percentages with an interval, values of a metric.

Files and APIs have raw joules and seconds. An unknown value is said to be unknown, never shown as 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Self

from wattloop.wire.environment import RunTarget
from wattloop_planner.estimate import Estimate

UNKNOWN = "unknown"
NOT_KNOWN_YET = "not known yet"
# A table's cell of a run that has no such value, such as the saving of a default run.
NONE = "–"
JOULES_PER_KILOWATT_HOUR = 3_600_000
SIGNIFICANT_DIGITS = 4
# An interval of savings has no end below this: the default's cost may be near zero.
MIN_PERCENT = -999.0


@dataclass(frozen=True)
class Unit:
    """A unit of energies, times or money. All figures of one job, or of one column, have the same one.

    Attributes:
        size: Its size in joules, in seconds, or in units of the currency.
    """

    size: float
    name: str

    def number(self, value: float | None, unknown: str = NONE) -> str:
        """A value without the name of the unit.

        Example:
            >>> KILOWATT_HOURS.number(100_000.0), KILOWATT_HOURS.number(None)
            ('0.02778', '–')
        """
        return number_text(None if value is None else value / self.size, unknown)

    def text(self, value: float | None) -> str:
        """A measured value.

        Example:
            >>> KILOWATT_HOURS.text(5_400_000.0), MINUTES.text(None)
            ('1.5 kWh', 'unknown')
        """
        return UNKNOWN if value is None else f"{self.number(value)} {self.name}"

    def interval_text(self, estimate: Estimate | None) -> str:
        """An estimate with its interval; the interval alone if its sign is not known.

        Example:
            >>> MINUTES.interval_text(Estimate(600.0, 300.0, 1200.0)), MINUTES.interval_text(None)
            ('10 min (5 to 20)', 'not known yet')
            >>> MINUTES.interval_text(Estimate(-60.0, -600.0, 300.0))
            '-10 to 5 min'
        """
        if estimate is None:
            return NOT_KNOWN_YET
        low, high = self.number(estimate.low), self.number(estimate.high)
        if not estimate.has_known_sign:
            return f"{low} to {high} {self.name}"
        return f"{self.text(estimate.value)} ({low} to {high})"

    def saving_text(self, saved: Estimate | None) -> str:
        """What was saved as a phrase: how much less, or more, than in the default configuration.

        Example:
            >>> MINUTES.saving_text(Estimate(600.0, 300.0, 1200.0)), MINUTES.saving_text(None)
            ('10 min less (5 to 20)', 'not known yet')
            >>> MINUTES.saving_text(Estimate(-60.0, -600.0, 300.0))
            'between 10 min more and 5 min less'
        """
        if saved is None:
            return NOT_KNOWN_YET
        if not saved.has_known_sign:
            return f"between {self.text(-saved.low)} more and {self.text(saved.high)} less"
        word = "less" if saved.value >= 0 else "more"
        nearer, farther = sorted((abs(saved.low), abs(saved.high)))
        return f"{self.text(abs(saved.value))} {word} ({self.number(nearer)} to {self.number(farther)})"


@dataclass(frozen=True)
class Units:
    """The units of the energies and times of one job or table."""

    energy: Unit
    time: Unit

    @classmethod
    def of(cls, joules: Iterable[float | None], seconds: Iterable[float | None]) -> Self:
        """Those of the largest energy and of the longest time."""
        return cls(energy_unit(joules), time_unit(seconds))


JOULES, SECONDS = Unit(1.0, "J"), Unit(1.0, "s")
# Of the columns of kubectl, whose rows are of different jobs.
KILOWATT_HOURS, MINUTES = Unit(JOULES_PER_KILOWATT_HOUR, "kWh"), Unit(60.0, "min")
ENERGY_UNITS = (Unit(1e3 * JOULES_PER_KILOWATT_HOUR, "MWh"), KILOWATT_HOURS, Unit(1e3, "kJ"), JOULES)
TIME_UNITS = (Unit(3600.0, "h"), MINUTES, SECONDS)


def energy_unit(joules: Iterable[float | None]) -> Unit:
    """The unit of energies: that of the largest one.

    Example:
        >>> energy_unit((12.0, 7_200_000.0, None)).name, energy_unit((210_058.0,)).name, energy_unit(()).name
        ('kWh', 'kJ', 'J')
    """
    return _unit(_largest(joules), ENERGY_UNITS)


def time_unit(seconds: Iterable[float | None]) -> Unit:
    """The unit of times: that of the largest one. Two minutes and more are not in seconds.

    Example:
        >>> time_unit((90.0, 5432.0)).name, time_unit((90.0,)).name
        ('min', 's')
    """
    return _unit(_largest(seconds) / 2, TIME_UNITS)


def time_text(seconds: float) -> str:
    """A single time in h, min or s by its size, with three significant digits.

    Example:
        >>> time_text(5432), time_text(90.0), time_text(4_000_000)
        ('90.5 min', '90 s', '1,111 h')
    """
    unit = time_unit((seconds,))
    value = seconds / unit.size
    return f"{value:,.0f} {unit.name}" if value >= 1000 else f"{value:.3g} {unit.name}"


def money_text(amount: float | None, currency: str) -> str:
    """An amount of money: two decimals, or two significant digits below 1.

    Example:
        >>> money_text(12.3456, "EUR"), money_text(0.003456, "USD"), money_text(None, "EUR")
        ('12.35 EUR', '0.0035 USD', 'unknown')
    """
    if amount is None:
        return UNKNOWN
    return f"{amount:,.2f} {currency}" if abs(amount) >= 1 else f"{amount:.2g} {currency}"


def metric_text(value: float | None) -> str:
    """A value of a metric with four significant digits; empty if none was reported.

    Example:
        >>> metric_text(0.950123456789), metric_text(24.0), metric_text(None)
        ('0.9501', '24', '')
    """
    return "" if value is None else f"{value:.{SIGNIFICANT_DIGITS}g}"


def target_text(target: RunTarget) -> str:
    """The metric and the threshold of a target.

    Example:
        >>> target_text(RunTarget("loss", 0.1, maximize=False))
        'loss ≤ 0.1'
    """
    return f"{target.metric} {'≥' if target.maximize else '≤'} {metric_text(target.threshold)}"


def epochs_text(epochs: Decimal | float) -> str:
    """A number of epochs with its unit.

    Example:
        >>> epochs_text(1), epochs_text(Decimal("2.5")), epochs_text(0)
        ('1 epoch', '2.5 epochs', '0 epochs')
    """
    return f"{float(epochs):g} epoch{'' if epochs == 1 else 's'}"


def optional_float(value: Decimal | None) -> float | None:
    """A number of a status as a float."""
    return None if value is None else float(value)


def number_text(value: float | None, unknown: str = NONE) -> str:
    """Four significant digits, or more if the integer part has more.

    Example:
        >>> number_text(1234567.8), number_text(12.3456), number_text(250.0), number_text(None)
        ('1,234,568', '12.35', '250', '–')
    """
    if value is None:
        return unknown
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{SIGNIFICANT_DIGITS}g}"


def percent_text(percent: Estimate | None, unknown: str = NOT_KNOWN_YET) -> str:
    """A percentage with its interval; the interval alone if its sign is not known. It fits a column of a table.

    Example:
        >>> percent_text(Estimate(31.4, 25.2, 36.0)), percent_text(None)
        ('31 % (25 to 36)', 'not known yet')
        >>> percent_text(Estimate(17.0, -340.0, 84.0))
        '-340 to 84 %'
    """
    if percent is None:
        return unknown
    if not percent.has_known_sign:
        return f"{_integer(percent.low)} to {_integer(percent.high)} %"
    return f"{_integer(percent.value)} % ({_integer(percent.low)} to {_integer(percent.high)})"


def saving_text(percent: Estimate | None) -> str:
    """A saving in percent as a phrase: how much less, or more, than in the default configuration.

    Where the interval has both signs, nothing is known to be saved or lost, so the phrase has the interval alone.

    Example:
        >>> saving_text(Estimate(31.4, 25.2, 36.0)), saving_text(Estimate(-12.0, -20.0, -4.0)), saving_text(None)
        ('31 % less (25 to 36)', '12 % more (4 to 20)', 'not known yet')
        >>> saving_text(Estimate(3.0, -2.0, 8.0))
        'between 2 % more and 8 % less'
        >>> saving_text(Estimate(2.0, -2730.0, 25.0))
        'between over 999 % more and 25 % less'
    """
    if percent is None:
        return NOT_KNOWN_YET
    value, low, high = (_rounded(each) for each in (percent.value, percent.low, percent.high))
    word = "less" if value >= 0 else "more"
    if not percent.has_known_sign:
        return f"between {_size(low)} % more and {high} % less"
    nearer, farther = sorted((low, high), key=abs)
    return f"{_size(value)} % {word} ({_size(nearer)} to {_size(farther)})"


def _size(percent: int) -> str:
    return f"over {abs(percent)}" if percent <= MIN_PERCENT else str(abs(percent))


def _rounded(percent: float) -> int:
    return round(max(percent, MIN_PERCENT)) if math.isfinite(percent) else round(MIN_PERCENT)


def _integer(percent: float) -> str:
    return str(_rounded(percent))


def _largest(values: Iterable[float | None]) -> float:
    return max((abs(each) for each in values if each is not None), default=0.0)


def _unit(largest: float, units: tuple[Unit, ...]) -> Unit:
    return next((unit for unit in units if largest >= unit.size), units[-1])
