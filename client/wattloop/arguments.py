"""Checks of the arguments that a script passes: each raises `UsageError`, whose text says what was meant."""

import math
import operator
from typing import Any

from wattloop.errors import UsageError
from wattloop.printable import short_repr


def whole_number(value: object, name: str, minimum: int = 1, maximum: int | None = None) -> int:
    """The argument as an int, of any integer type.

    Example:
        >>> whole_number(8, "the batch size")
        8
        >>> whole_number("8", "the batch size")
        Traceback (most recent call last):
        wattloop.errors.UsageError: the batch size is '8'; it must be a whole number of at least 1
    """
    given: Any = value
    try:
        number = operator.index(given)
    except TypeError:
        number = minimum - 1
    if number < minimum or isinstance(value, bool) or (maximum is not None and number > maximum):
        expected = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise UsageError(f"{name} is {short_repr(value)}; it must be a whole number {expected}")
    return number


def number_between(value: object, name: str, minimum: float, maximum: float, expected: str) -> float:
    """The argument as a finite float, of any real type.

    Example:
        >>> number_between(2, "eta", 0, 1, "from 0 to 1")
        Traceback (most recent call last):
        wattloop.errors.UsageError: eta is 2; it must be from 0 to 1
    """
    given: Any = value
    try:
        # A string has no __float__, so that text is rejected even where float() would parse it.
        number = float(given) if hasattr(type(value), "__float__") else math.nan
    except (TypeError, ValueError, RuntimeError, OverflowError):
        number = math.nan
    if not (minimum <= number <= maximum and math.isfinite(number)):
        raise UsageError(f"{name} is {short_repr(value)}; it must be {expected}")
    return number


def gpu_names(value: object) -> tuple[int | str, ...] | None:
    """The GPUs that a script chose: indices and UUIDs; None if it chose none.

    Example:
        >>> gpu_names([0, "GPU-1"])
        (0, 'GPU-1')
        >>> gpu_names("0")
        Traceback (most recent call last):
        wattloop.errors.UsageError: gpus is '0'; it must be a list of indices or UUIDs, such as [0, 1]
    """
    if value is None:
        return None
    names: Any = value
    try:
        found = None if isinstance(value, (str, bytes)) else tuple(names)
    except TypeError:
        found = None
    if found is None or not all(isinstance(each, (int, str)) and not isinstance(each, bool) for each in found):
        raise UsageError(f"gpus is {short_repr(value)}; it must be a list of indices or UUIDs, such as [0, 1]")
    return found
