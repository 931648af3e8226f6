"""A metric as scripts and frameworks give it: a number, or a tensor of one element."""

from collections.abc import Iterable, Mapping
from typing import Any

from wattloop.errors import InputError
from wattloop.printable import short_repr

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
