"""Quantities as a person reads them: energy, time, money, percentages with an interval, values of a metric.

Files and APIs have raw joules and seconds. An unknown value is said to be unknown, never shown as 0.
"""

from __future__ import annotations

import math
from decimal import Decimal

from wattloop.wire.environment import RunTarget
from wattloop_planner.estimate import Estimate

Units = tuple[tuple[float, str], ...]

UNKNOWN = "unknown"
NOT_KNOWN_YET = "not known yet"
# A table's cell of a run that has no such value, such as the saving of a default run.
NONE = "–"
JOULES_PER_KILOWATT_HOUR = 3_600_000
ENERGY_UNITS: Units = ((1e3 * JOULES_PER_KILOWATT_HOUR, "MWh"), (JOULES_PER_KILOWATT_HOUR, "kWh"), (1e3, "kJ"))
TIME_UNITS: Units = ((3600.0, "h"), (60.0, "min"))
SIGNIFICANT_DIGITS = 4
# An interval of savings has no end below this: the default's cost may be near zero.
MIN_PERCENT = -999.0


def energy_unit(largest_joules: float) -> tuple[float, str]:
    """The unit for energies up to this one: its size in joules, and its name.

    Example:
        >>> energy_unit(7_200_000), energy_unit(210_058), energy_unit(12.0)
        ((3600000, 'kWh'), (1000.0, 'kJ'), (1.0, 'J'))
    """
    return _unit(largest_joules, ENERGY_UNITS, "J")


def time_unit(largest_seconds: float) -> tuple[float, str]:
    """The unit for times up to this one: its size in seconds, and its name. Two minutes and more are not in seconds."""
    return _unit(largest_seconds / 2, TIME_UNITS, "s")


def energy_text(joules: float | None) -> str:
    """An energy, or a cost, in kWh, kJ or J by its size.

    Example:
        >>> energy_text(210_058.26), energy_text(-5_400_000), energy_text(0.5), energy_text(None)
        ('210.1 kJ', '-1.5 kWh', '0.5 J', 'unknown')
    """
    if joules is None:
        return UNKNOWN
    size, name = energy_unit(abs(joules))
    return f"{number_text(joules / size)} {name}"


def energy_estimate_text(joules: Estimate, interval: str = "") -> str:
    """An estimated energy, or cost, with its interval.

    Args:
        joules: The estimate.
        interval: What the interval is of, with a colon and a space; empty where the text around says it.

    Example:
        >>> energy_estimate_text(Estimate(622_600.0, 382_800.0, 1_013_000.0))
        '622.6 kJ (382.8 to 1,013)'
    """
    size, name = energy_unit(abs(joules.value))
    low, value, high = (number_text(each / size) for each in (joules.low, joules.value, joules.high))
    return f"{value} {name} ({interval}{low} to {high})"


def time_text(seconds: float | None) -> str:
    """A time in h, min or s by its size, with three significant digits.

    Example:
        >>> time_text(5432), time_text(90.0), time_text(4_000_000), time_text(None)
        ('90.5 min', '90 s', '1,111 h', 'unknown')
    """
    if seconds is None:
        return UNKNOWN
    size, name = time_unit(abs(seconds))
    value = seconds / size
    return f"{value:,.0f} {name}" if value >= 1000 else f"{value:.3g} {name}"


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


def short_percent_text(percent: Estimate, width: int) -> str:
    """A percentage with the half width of its interval if there is room; ? if its sign is not known.

    Example:
        >>> short_percent_text(Estimate(31.4, 25.2, 36.0), 5), short_percent_text(Estimate(-156.0, -200.0, -90.0), 5)
        ('31±5', '-156')
        >>> short_percent_text(Estimate(17.0, -340.0, 84.0), 5)
        '?'
    """
    if not percent.has_known_sign:
        return "?"
    value = _integer(percent.value)
    text = f"{value}±{max(round((percent.high - percent.low) / 2), 1)}"
    return text if len(text) <= width else value


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


def _unit(largest: float, units: Units, base: str) -> tuple[float, str]:
    return next((unit for unit in units if abs(largest) >= unit[0]), (1.0, base))
