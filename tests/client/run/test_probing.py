"""Probes run the same steps with each value, and leave random numbers as they were."""

import math
import random
from collections.abc import Callable

import pytest

from wattloop.errors import UsageError
from wattloop.run.probing import run_probes


def noisy_steps(value: float) -> Callable[[], float]:
    return lambda: value + random.random()


def test_all_values_get_the_same_random_numbers_which_are_then_unchanged() -> None:
    random.seed(5)
    expected = [random.random() for _ in range(3)]
    random.seed(5)
    probes = run_probes([2.0, 1.0, 1.0], noisy_steps, steps=3).probes
    assert [random.random() for _ in range(3)] == expected
    assert [probe.losses for probe in probes] == [tuple(value + each for each in expected) for value in (2.0, 1.0, 1.0)]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_value_that_diverges_stops_at_once_and_is_never_the_best(loss: float) -> None:
    losses = iter([0.1, loss])
    probes = run_probes([1.0, 2.0], lambda value: (lambda: next(losses)) if value == 1.0 else (lambda: 5.0), steps=4)
    assert len(probes.probes[0].losses) == 2
    assert probes.best == 2.0
    assert run_probes([1.0], lambda _: lambda: loss, steps=4).best is None


def test_of_equal_values_the_first_is_the_best() -> None:
    assert run_probes(["a", "b"], lambda _: lambda: 1.0, steps=2).best == "a"


@pytest.mark.parametrize(("values", "steps", "message"), [([], 1, "no value"), ([1.0], 0, "at least 1")])
def test_wrong_use_is_an_error(values: list[float], steps: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run_probes(values, noisy_steps, steps)
