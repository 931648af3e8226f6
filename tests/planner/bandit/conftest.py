"""Short notations for observations and decision contexts."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from wattloop_planner.bandit.policy import DecisionContext
from wattloop_planner.observations import Observation, Outcome

Run = tuple[int, float, Outcome]


def observed(runs: Sequence[Run]) -> tuple[Observation, ...]:
    """One attempt per recurrence: (batch size, cost for η = 1, outcome), with ten joules per epoch."""
    return tuple(
        Observation(i, 0, size, outcome, cost / 10, cost, cost / 100, 200.0)
        for i, (size, cost, outcome) in enumerate(runs)
    )


@pytest.fixture
def context_after() -> Callable[..., DecisionContext]:
    """A decision context after these runs, for η = 1."""

    def context(sizes: Sequence[int], default: int, runs: Sequence[Run] = (), **more: Any) -> DecisionContext:
        settings: dict[str, Any] = {"eta": 1.0, "recurrence": len(runs), "attempt": 0, "seed": 7, **more}
        return DecisionContext(tuple(sizes), default, observations=observed(runs), **settings)

    return context
