"""The optimal plan of a small pipeline, by branch and bound; a reference for other plans."""

from __future__ import annotations

import numpy as np

from wattloop.errors import UsageError
from wattloop_planner.frequency.pipeline.planning_problem import Choices, Problem
from wattloop_planner.frequency.pipeline.plans import SAME_TIME, Plan, realised_plan

MAX_OPERATIONS = 24


def exact_plan(problem: Problem, deadline_seconds: float) -> Plan | None:
    """The plan of minimum effective energy that meets a deadline.

    The search decides operations in topological order, slow options first. It prunes a branch if the
    fastest options miss the deadline, or if the cheapest options are no cheaper than the best plan so far.
    The time grows exponentially with the number of operations.

    Args:
        problem: The pipeline.
        deadline_seconds: Maximum time of the iteration.

    Returns:
        None if no plan meets the deadline.

    Raises:
        UsageError: The pipeline has more than 24 operations.
    """
    if problem.graph.operations > MAX_OPERATIONS:
        raise UsageError(
            f"{problem.graph.operations} operations: an exact plan takes too long beyond {MAX_OPERATIONS} operations"
        )
    return _Search(problem, deadline_seconds * (1 + SAME_TIME)).best()


class _Search:
    def __init__(self, problem: Problem, deadline: float) -> None:
        graph = problem.graph
        self._problem, self._deadline = problem, deadline
        self._befores: list[list[int]] = [[] for _ in range(graph.operations)]
        afters: list[list[int]] = [[] for _ in range(graph.operations)]
        for before, after in zip(graph.befores.tolist(), graph.afters.tolist(), strict=True):
            self._befores[after].append(before)
            afters[before].append(after)
        kinds = [problem.options[kind] for kind in graph.kind_of.tolist()]
        self._times = [options.times_seconds.tolist() for options in kinds]
        self._costs = [options.effective_joules.tolist() for options in kinds]
        self._order = problem.topological_order
        # The longest path after each operation with the fastest options.
        self._after = [0.0] * graph.operations
        for operation in reversed(self._order):
            followers = (self._times[next_][0] + self._after[next_] for next_ in afters[operation])
            self._after[operation] = max(followers, default=0.0)
        min_costs = [costs[-1] for costs in self._costs]
        self._min_cost_after = [
            sum(min_costs[op] for op in self._order[place:]) for place in range(len(self._order) + 1)
        ]
        self._finishes = [0.0] * graph.operations
        self._choices: Choices = np.zeros(graph.operations, dtype=np.int16)
        self._found: Choices | None = None
        self._found_cost = np.inf

    def best(self) -> Plan | None:
        self._decide(0, 0.0)
        return None if self._found is None else realised_plan(self._problem, self._found)

    def _decide(self, place: int, cost: float) -> None:
        if cost + self._min_cost_after[place] >= self._found_cost:
            return
        if place == len(self._order):
            self._found, self._found_cost = self._choices.copy(), cost
            return
        operation = self._order[place]
        start = max((self._finishes[before] for before in self._befores[operation]), default=0.0)
        for option in reversed(range(len(self._times[operation]))):
            finish = start + self._times[operation][option]
            if finish + self._after[operation] > self._deadline:
                continue
            self._finishes[operation] = finish
            self._choices[operation] = option
            self._decide(place + 1, cost + self._costs[operation][option])
