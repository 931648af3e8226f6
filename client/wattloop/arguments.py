"""Checks of the arguments and metrics that a script passes, whose errors say what was meant.

Those of arguments raise `UsageError`.
"""

import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from wattloop.errors import InputError, UsageError
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


MAX_SHOWN_NAMES = 20


def metric_value(value: object, name: str = "metric") -> float:
    """The metric as a number. NaN and infinities stay as they are.

    Raises:
        InputError: It is neither.

    Example:
        >>> metric_value(1)
        1.0
        >>> metric_value("0.9", "accuracy")
        Traceback (most recent call last):
        wattloop.errors.InputError: the metric accuracy: found '0.9' (str), expected one number
    """
    single: Any = value
    try:
        if callable(getattr(value, "item", None)):
            single = single.item()
        # A string has no __float__, so that text is rejected even where float() would parse it.
        if hasattr(type(single), "__float__"):
            return float(single)
    # An array of several elements: NumPy raises ValueError, PyTorch RuntimeError.
    except (TypeError, ValueError, RuntimeError, OverflowError):
        pass
    shape, kind = getattr(value, "shape", None), type(value).__name__
    found = f"{short_repr(value)} ({kind})"
    if isinstance(shape, tuple) and shape:
        found = f"a {kind} of shape {tuple(int(size) for size in shape)}"
    raise InputError("the metric" if name == "metric" else f"the metric {name}", found, "one number")


def metric_named(metrics: Mapping[str, Any], names: Iterable[str], source: str) -> float:
    """The value of the first of these names that the metrics have.

    Raises:
        InputError: None of the names is there, or its value is not one number.

    Example:
        >>> metric_named({"eval_accuracy": 0.9}, ("accuracy", "eval_accuracy"), "the evaluation")
        0.9
        >>> metric_named({"eval_loss": 0.9}, ("accuracy",), "the evaluation")
        Traceback (most recent call last):
        wattloop.errors.InputError: the evaluation: found eval_loss, expected accuracy among the metrics
    """
    wanted = tuple(names)
    for name in wanted:
        if name in metrics:
            return metric_value(metrics[name], name)
    found = [str(name) for name in metrics]
    shown = ", ".join(found[:MAX_SHOWN_NAMES]) + (", …" if len(found) > MAX_SHOWN_NAMES else "")
    raise InputError(source, shown or "no metrics", f"{' or '.join(wanted)} among the metrics")
