"""Plans a pipeline: the frontier of the relaxation, and plans along it."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from wattloop.errors import UsageError
from wattloop_planner.frequency.pipeline.planning_problem import Floats, Problem
from wattloop_planner.frequency.pipeline.plans import Plan
from wattloop_planner.frequency.solver.portfolio import (
    breakpoint_plans,
    gaps,
    improved_plans,
    plans_to_improve,
    rounded_plans,
    rounding_spacing,
    split_plans,
)
from wattloop_planner.frequency.solver.relaxation import Frontier, Relaxation, Segment, Walk
from wattloop_planner.frequency.solver.roundings import Roundings, with_exact_min_time
from wattloop_planner.frequency.solver.selection import spread_plans
from wattloop_planner.frequency.solver.steady_state import steady_state

MIN_PLANS = 3
DEFAULT_PLANS = 40
MAX_PLANS = 10_000
SEGMENTS_PER_REPORT = 8


@dataclass(frozen=True)
class Planning:
    """The result of planning.

    Attributes:
        frontier: Frontier of the continuous relaxation, a lower bound of the energy of all plans.
        plans: Plans, slowest first, none dominated.
        steady_microbatches: Number of microbatches solved if the iteration repeats them; None if all were
            solved.
        phase_seconds: Wall time of the phases relaxation and plans.
    """

    frontier: Frontier
    plans: list[Plan]
    steady_microbatches: int | None
    phase_seconds: dict[str, float]

    @property
    def gaps(self) -> Floats:
        """Relative excess energy of each plan over the relaxation at the plan's time, shape (plans,)."""
        return gaps(self.frontier, self.plans)


def plan_pipeline(
    problem: Problem,
    count: int | None = DEFAULT_PLANS,
    *,
    use_steady_state: bool = True,
    on_progress: Callable[[str, float], None] = lambda _what, _fraction: None,
) -> Planning:
    """Find the time-energy frontier of a pipeline, and plans along it.

    Args:
        problem: The pipeline, see `pipeline_problem`.
        count: Maximum number of plans, 3 to 10,000; the plans with the smallest loss at deadlines between
            them are selected. None: at most one plan per breakpoint of the relaxation, and at most 10,000.
        use_steady_state: Whether to plan a long iteration by its repeated structure; the frontier is equal
            within 0.001 %.
        on_progress: Called repeatedly with the name of the current phase and the completed fraction of it.

    Returns:
        The frontier and the plans. The first plan runs every operation at its minimum effective energy, the
        last is the fastest possible; the plan of minimum energy is included.

    Raises:
        UsageError: ``count`` is below 3 or above 10,000.

    Example:
        See `wattloop_planner.frequency`.
    """
    if count is not None and not MIN_PLANS <= count <= MAX_PLANS:
        raise UsageError(
            f"--plans {count}: must be {MIN_PLANS} (the slowest, the cheapest, the fastest) to {MAX_PLANS}, or all"
        )
    clock = _PhaseTimer()
    on_progress("relaxation", 0.0)
    with clock.phase("relaxation"):
        steady = steady_state(problem) if use_steady_state else None
        walk: Walk = steady or Relaxation(problem)
    with clock.phase("plans"):
        roundings = Roundings(problem)
        spacing = rounding_spacing(problem, count or DEFAULT_PLANS)
        segments = _with_progress(
            problem, clock.within("relaxation", walk.segments(spacing if count else 0.0)), on_progress
        )
        if count is None:
            pool = breakpoint_plans(roundings, segments, MAX_PLANS, spacing)
        else:
            pool = list(rounded_plans(roundings, segments))
        frontier = walk.frontier
        max_plans = max(count or min(len(frontier.times_seconds), MAX_PLANS), MIN_PLANS)
        on_progress("plans", 0.0)
        pool.extend(split_plans(problem, frontier, pool, max_plans))
        starts = spread_plans(frontier, pool, plans_to_improve(problem, max_plans))
        pool.extend(improved_plans(problem, frontier, starts))
        plans = spread_plans(frontier, with_exact_min_time(problem, pool), max_plans)
    return Planning(frontier, plans, steady.short.graph.microbatches if steady else None, clock.seconds)


def _with_progress(
    problem: Problem, walk: Iterable[Segment], on_progress: Callable[[str, float], None]
) -> Iterator[Segment]:
    """The segments of a walk, with reports of the progress along the frontier."""
    slowest, fastest = (problem.pipeline.realise(choices)[0] for choices in (problem.slowest, problem.fastest))
    for number, segment in enumerate(walk):
        if number % SEGMENTS_PER_REPORT == 0 and slowest > fastest:
            on_progress("relaxation", (slowest - segment.fast_seconds) / (slowest - fastest))
        yield segment


class _PhaseTimer:
    """Wall time by phase; the time of a nested phase counts for that phase only."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        others = sum(self.seconds.values())
        started = time.perf_counter()
        yield
        elapsed = time.perf_counter() - started - (sum(self.seconds.values()) - others)
        self.seconds[name] = self.seconds.get(name, 0.0) + elapsed

    def within(self, name: str, items: Iterable[Segment]) -> Iterator[Segment]:
        """The items; the time to produce them counts for this phase."""
        iterator = iter(items)
        while True:
            started = time.perf_counter()
            item = next(iterator, None)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
            if item is None:
                return
            yield item
