"""What a pipeline has measured under its plan, and what the plan saves and loses against maximum clocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wattloop.pipeline.messages import PLAN
from wattloop_operator.reconcile.pipeline.state import PipelineState


@dataclass(frozen=True)
class Measured:
    """What the ranks measured under the present directive.

    Attributes:
        time_seconds: Time of an iteration of the slowest rank.
        energy_joules: Energy of an iteration, the mean over the pipelines; None until all ranks report it.
        iterations: Number of iterations, of the rank with the fewest.
        energy_error_joules: Standard error of the energy; None until all ranks report theirs.
    """

    time_seconds: float
    energy_joules: float | None
    iterations: int
    energy_error_joules: float | None = None


def measured(state: PipelineState) -> Measured | None:
    """What the ranks measured under the present plan; None until each of them has reported an iteration."""
    if state.directive.mode != PLAN or not state.ranks or len(state.ranks) != state.expected_ranks:
        return None
    reports = [rank.report for rank in state.ranks.values()]
    present = [
        report
        for report in reports
        if report is not None
        and report.applied_directive == state.directive.number
        and report.measured_iterations
        and report.iteration_seconds
    ]
    if len(present) < len(reports):
        return None
    energies = [report.iteration_joules for report in present if report.iteration_joules is not None]
    errors = [report.iteration_error_joules for report in present if report.iteration_error_joules is not None]
    registration = next(iter(state.ranks.values())).registration
    pipelines = registration.ranks // registration.pipeline_parallel
    return Measured(
        max(report.iteration_seconds or 0.0 for report in present),
        sum(energies) / pipelines if len(energies) == len(present) else None,
        min(report.measured_iterations for report in present),
        # Each rank reads counters of its own.
        math.hypot(*errors) / pipelines if len(errors) == len(present) else None,
    )


def chosen_point(state: PipelineState) -> int | None:
    """The point of the present directive; None if it runs no plan of the present frontier."""
    directive, frontier = state.directive, state.frontier
    if directive.mode != PLAN or frontier is None or directive.profile_digest != frontier.profile_digest:
        return None
    point = directive.point if directive.straggler_point is None else directive.straggler_point
    return point if point is not None and point < len(frontier.points) else None


def is_beside_straggler(state: PipelineState) -> bool:
    """Whether the pipelines of the plan wait for a straggler."""
    return state.directive.straggler_point is not None


def saving_percent(state: PipelineState, found: Measured | None) -> float | None:
    """Energy saved against maximum clocks, in percent; None without a plan or without the energy of maximum clocks.

    What an iteration took beyond its plan, such as the optimizer's step, counts at maximum clocks, too. While a
    pipeline waits for a straggler, both sides wait as long.
    """
    energies = _compared_energies(state, found)
    return None if energies is None else 100 * energies.saved / (energies.saved + energies.taken)


def saving_error_percent(state: PipelineState, found: Measured | None) -> float | None:
    """Standard error of the saving in points of percent; None if it is not known.

    It covers the errors of the measured instructions and that of the realised energy.
    """
    energies = _compared_energies(state, found)
    if energies is None or energies.saved_error is None or energies.taken_error is None:
        return None
    error = math.hypot(energies.taken * energies.saved_error, energies.saved * energies.taken_error)
    return 100 * error / (energies.saved + energies.taken) ** 2


def slowdown_percent(state: PipelineState, found: Measured | None) -> float | None:
    """Time lost against maximum clocks, in percent; None without a plan, and beside a straggler, which takes the time.

    What an iteration took beyond its plan counts at maximum clocks, too.
    """
    times = _compared_times(state, found)
    return None if times is None else 100 * times.lost / times.at_maximum


def slowdown_error_percent(state: PipelineState, found: Measured | None) -> float | None:
    """Standard error of the slowdown in points of percent, from the errors of the measured instructions.

    None if it is not known.
    """
    times = _compared_times(state, found)
    return None if times is None or times.lost_error is None else 100 * times.lost_error / times.at_maximum


@dataclass(frozen=True)
class _ComparedEnergies:
    """What an iteration takes, and what it saves against maximum clocks, in joules, with their standard errors."""

    saved: float
    taken: float
    saved_error: float | None
    taken_error: float | None


def _compared_energies(state: PipelineState, found: Measured | None) -> _ComparedEnergies | None:
    frontier, chosen = state.frontier, chosen_point(state)
    if frontier is None or chosen is None or frontier.highest_clocks is None:
        return None
    point, highest = frontier.points[chosen], frontier.highest_clocks
    planned, base, error = point.energy_joules, highest.energy_joules, point.saving_error_joules
    if is_beside_straggler(state):
        until = max(point.time_seconds, highest.time_seconds)
        waiting_watts = frontier.blocking_watts * len(point.clocks_megahertz)
        planned += waiting_watts * (until - point.time_seconds)
        base += waiting_watts * (until - highest.time_seconds)
        if error is not None and point.slowdown_error_seconds is not None:
            error = math.hypot(error, waiting_watts * point.slowdown_error_seconds)
    if base <= 0:
        return None
    if found is None or found.energy_joules is None or found.energy_joules <= planned:
        return _ComparedEnergies(base - planned, planned, error, 0.0)
    return _ComparedEnergies(base - planned, found.energy_joules, error, found.energy_error_joules)


@dataclass(frozen=True)
class _ComparedTimes:
    """What an iteration takes at maximum clocks, and what the plan takes beyond that, in seconds."""

    lost: float
    at_maximum: float
    lost_error: float | None


def _compared_times(state: PipelineState, found: Measured | None) -> _ComparedTimes | None:
    frontier, chosen = state.frontier, chosen_point(state)
    if frontier is None or chosen is None or frontier.highest_clocks is None or is_beside_straggler(state):
        return None
    point, base = frontier.points[chosen], frontier.highest_clocks.time_seconds
    if base <= 0:
        return None
    beyond = 0.0 if found is None else max(found.time_seconds - point.time_seconds, 0.0)
    return _ComparedTimes(point.time_seconds - base, base + beyond, point.slowdown_error_seconds)
