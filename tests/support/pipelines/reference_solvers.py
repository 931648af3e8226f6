"""Reference solvers for frequency plans: simple, slow, from the problem's definition.

Only `exact_plan` uses code of the planner: how a choice of clocks becomes a plan.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from wattloop_planner.frequency.pipeline.graph import OperationGraph
from wattloop_planner.frequency.pipeline.planning_problem import Choices, Problem
from wattloop_planner.frequency.pipeline.plans import SAME_TIME, Plan, realised_plan


def longest_path(graph: OperationGraph, durations: Sequence[float]) -> float:
    """The longest path, by relaxing every precedence until nothing changes."""
    finish = list(durations)
    edges = list(zip(graph.befores.tolist(), graph.afters.tolist(), strict=True))
    changed = True
    while changed:
        changed = False
        for before, after in edges:
            if finish[before] + durations[after] > finish[after]:
                finish[after] = finish[before] + durations[after]
                changed = True
    return max(finish)


def reference_evaluation(problem: Problem, frequencies: Sequence[Sequence[int]]) -> tuple[float, float]:
    """Time and energy at these frequencies: E = Σ e + P · (S · T - Σ t)."""
    graph = problem.graph
    durations, energy = [0.0] * graph.operations, 0.0
    for row, order in zip(frequencies, graph.order, strict=True):
        for operation, frequency in zip(order.tolist(), row, strict=True):
            kind = (int(graph.stage_of[operation]), graph.instructions[graph.instruction_of[operation]])
            (option,) = [o for o in problem.profile.options[kind] if o.frequency_megahertz == frequency]
            durations[operation] = option.time_seconds
            energy += option.energy_joules
    time = longest_path(graph, durations)
    return time, energy + problem.blocking_power_watts * (graph.stages * time - sum(durations))


def every_plan(problem: Problem) -> Iterator[tuple[float, float]]:
    """Time and effective energy of every choice of measured frequencies."""
    graph, power = problem.graph, problem.blocking_power_watts
    pools = [problem.profile.options[graph.kinds[kind]] for kind in graph.kind_of.tolist()]
    for chosen in itertools.product(*pools):
        time = longest_path(graph, [option.time_seconds for option in chosen])
        yield time, sum(option.energy_joules - power * option.time_seconds for option in chosen)


class LinearProgram:
    """The relaxation as a linear program, solved by HiGHS.

    Variables: the start of each operation, and the used length of each piece of its lower envelope. In an
    optimum of a convex envelope, the steepest pieces are used first.
    """

    def __init__(self, problem: Problem) -> None:
        graph = problem.graph
        self.count = graph.operations
        self.fixed, self.base = np.empty(self.count), 0.0
        slopes: list[float] = []
        lengths: list[float] = []
        owners: list[int] = []
        for operation in range(self.count):
            points = _envelope(problem, graph.kinds[graph.kind_of[operation]])
            self.fixed[operation] = points[0][0]
            self.base += points[0][1]
            for (time, cost), (next_time, next_cost) in itertools.pairwise(points):
                owners.append(operation)
                lengths.append(next_time - time)
                slopes.append((next_cost - cost) / (next_time - time))
        owner = np.array(owners, dtype=int)
        piece = self.count + np.arange(len(owners))
        edges = len(graph.befores)
        # start[before] + fixed[before] + pieces[before] - start[after] <= 0, and the end of each operation <= time.
        before = np.concatenate([graph.befores, np.arange(self.count)])
        rows = np.arange(edges + self.count)
        of_row = [(row, p) for row, op in zip(rows, before, strict=True) for p in piece[owner == op]]
        entries = [(row, op, 1.0) for row, op in zip(rows, before, strict=True)]
        entries += [(row, op, -1.0) for row, op in zip(range(edges), graph.afters, strict=True)]
        entries += [(row, p, 1.0) for row, p in of_row]
        row, column, value = zip(*entries, strict=True)
        self.matrix = coo_array((value, (row, column)), shape=(len(rows), self.count + len(owners))).tocsr()
        self.right = -self.fixed[before]
        self.edges = edges
        self.cost = np.concatenate([np.zeros(self.count), slopes])
        self.bounds = [(0.0, None)] * self.count + [(0.0, length) for length in lengths]

    def min_effective_joules(self, time: float) -> float:
        """Minimum effective energy within this time."""
        right = self.right.copy()
        right[self.edges :] += time
        accurate = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
        found = linprog(self.cost, self.matrix, right, bounds=self.bounds, method="highs", options=accurate)
        assert found.status == 0, found.message
        return self.base + float(found.fun)


def _envelope(problem: Problem, kind: tuple[int, str]) -> list[tuple[float, float]]:
    """Lower convex envelope of (time, effective energy) up to the minimum, by its definition: no chord is below."""
    power = problem.blocking_power_watts
    points = sorted({(o.time_seconds, o.energy_joules - power * o.time_seconds) for o in problem.profile.options[kind]})
    cheapest = min(points, key=lambda point: (point[1], point[0]))
    points = [point for point in points if point[0] <= cheapest[0]]

    def is_corner(point: tuple[float, float]) -> bool:
        others = [other for other in points if other != point]
        if any(other[0] == point[0] and other[1] <= point[1] for other in others):
            return False
        for a in others:
            for b in others:
                if a[0] < point[0] < b[0]:
                    chord = a[1] + (b[1] - a[1]) * (point[0] - a[0]) / (b[0] - a[0])
                    if chord <= point[1]:
                        return False
        return True

    return [point for point in points if is_corner(point)]


def exact_plan(problem: Problem, deadline_seconds: float) -> Plan | None:
    """The plan of minimum effective energy that meets a deadline.

    The search decides operations in topological order, slow options first. It prunes a branch if the
    fastest options miss the deadline, or if the cheapest options are no cheaper than the best plan so far.
    The time grows exponentially with the number of operations.

    Returns:
        None if no plan meets the deadline.
    """
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
