"""Parameters of which the usual set has the first ones alone."""

from collections.abc import Iterable
from typing import Any

import pytest


def exhaustive_after(values: Iterable[Any], *, usual: int = 1) -> list[Any]:
    """The values for `parametrize`: those after the first ones are of the exhaustive set.

    Args:
        values: The parameters, the one that shows most first; a tuple where several names have one value each.
        usual: How many of them the usual set has.

    >>> [[mark.name for mark in each.marks] for each in exhaustive_after("abc", usual=2)]
    [[], [], ['exhaustive']]
    """
    marked = []
    for place, value in enumerate(values):
        parts = value if isinstance(value, tuple) else (value,)
        marked.append(pytest.param(*parts, marks=[pytest.mark.exhaustive] if place >= usual else []))
    return marked
