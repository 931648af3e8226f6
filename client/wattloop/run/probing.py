"""Probes: a few training steps with each value of a hyperparameter, on copies, before one is used.

A framework's part makes the copies (`wattloop.integrations.pytorch_probe`). This part runs the steps,
keeps Python's and NumPy's random numbers as they were, and selects the best value.
"""

import contextlib
import math
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from wattloop.errors import UsageError

Value = TypeVar("Value")


@dataclass(frozen=True)
class Probe(Generic[Value]):
    """The steps with one value.

    Attributes:
        value: The value of the hyperparameter.
        losses: The loss of each step; ends with the first that is not finite.
    """

    value: Value
    losses: tuple[float, ...]

    @property
    def diverged(self) -> bool:
        """Whether a loss was not finite."""
        return not all(map(math.isfinite, self.losses))

    @property
    def score(self) -> float:
        """Mean loss of the second half of the steps, infinite if it diverged. Lower is better."""
        return math.inf if self.diverged else statistics.fmean(self.losses[len(self.losses) // 2 :])


@dataclass(frozen=True)
class Probes(Generic[Value]):
    """All probes, in the order of the values."""

    probes: tuple[Probe[Value], ...]

    @property
    def best(self) -> Value | None:
        """The value of the lowest score, the first of equal ones; None if all diverged."""
        best = min(self.probes, key=lambda probe: probe.score)
        return None if best.diverged else best.value


def run_probes(values: Sequence[Value], start: Callable[[Value], Callable[[], float]], steps: int) -> Probes[Value]:
    """Run the steps of each value, all with the same random numbers.

    Args:
        values: At least one.
        start: Returns the step of a new copy with the value; a step returns its loss.
        steps: Number of steps with each value, at least 1.

    Raises:
        UsageError: There is no value, or no step.

    Example:
        >>> def start(rate):
        ...     weight = [4.0]
        ...     def step():
        ...         weight[0] -= rate * 2 * weight[0]
        ...         return weight[0] ** 2
        ...     return step
        >>> run_probes([0.01, 0.4, 2.0], start, steps=4).best
        0.4
    """
    check_probes(values, steps)
    probes = []
    for value in values:
        with unchanged_random_numbers():
            probes.append(run_probe(value, start(value), steps))
    return Probes(tuple(probes))


def check_probes(values: Sequence[Value], steps: int) -> None:
    """Check that there is something to probe."""
    if not values:
        raise UsageError("there is no value to probe; at least one is needed")
    if steps < 1:
        raise UsageError(f"found {steps} steps, expected at least 1")


def run_probe(value: Value, step: Callable[[], float], steps: int) -> Probe[Value]:
    """Run the steps of one value, up to the first loss that is not finite."""
    losses: list[float] = []
    for _ in range(steps):
        losses.append(float(step()))
        if not math.isfinite(losses[-1]):
            break
    return Probe(value, tuple(losses))


@contextlib.contextmanager
def unchanged_random_numbers() -> Iterator[None]:
    """Restore the state of `random` and, if it is imported, of NumPy's global generator at the end."""
    state = random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = None if numpy is None else numpy.random.get_state()
    try:
        yield
    finally:
        random.setstate(state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)
