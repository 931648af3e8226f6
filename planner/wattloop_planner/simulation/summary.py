"""What a simulation came to: its cost over that of the best fixed choice, and what it lost against never optimising."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

from wattloop_planner.observations import Outcome
from wattloop_planner.simulation.simulator import Scenario, SimulatedAttempt


@dataclass(frozen=True)
class SeedSummary:
    """One job under one seed.

    Attributes:
        first_20: Cost of the first 20 recurrences over that of the best fixed choice, expected, retries included.
        first_50: The same of the first 50.
        overall: The same of all.
        last_five: The same of the last five.
        max_loss: Largest cumulative cost above policy default on the same seed, in its expected recurrences.
        against_default: Total cost over that of policy default on the same seed.
        dead: Recurrences whose attempts never reached the target.
    """

    first_20: float
    first_50: float
    overall: float
    last_five: float
    max_loss: float
    against_default: float
    dead: int


def summarise(
    scenario: Scenario, attempts: Sequence[SimulatedAttempt], default_attempts: Sequence[SimulatedAttempt]
) -> SeedSummary:
    """Sum up one seed against policy default on the same seed."""
    costs = costs_by_recurrence(scenario.recurrences, attempts)
    default_costs = costs_by_recurrence(scenario.recurrences, default_attempts)
    best = [
        scenario.trace.best_fixed_cost_joules(scenario.target_in_force(i), scenario.max_epochs)
        for i in range(scenario.recurrences)
    ]
    losses = accumulate(cost - default for cost, default in zip(costs, default_costs, strict=True))
    reached = {done.recurrence for done in attempts if done.result.outcome is Outcome.REACHED}
    return SeedSummary(
        sum(costs[:20]) / sum(best[:20]),
        sum(costs[:50]) / sum(best[:50]),
        sum(costs) / sum(best),
        sum(costs[-5:]) / sum(best[-5:]),
        max(0.0, *losses) / _default_cost_joules(scenario, default_costs),
        sum(costs) / sum(default_costs),
        scenario.recurrences - len(reached),
    )


def costs_by_recurrence(recurrences: int, attempts: Sequence[SimulatedAttempt]) -> list[float]:
    """Cost of each recurrence, all its attempts together, joules."""
    costs = [0.0] * recurrences
    for done in attempts:
        costs[done.recurrence] += done.result.cost_joules
    return costs


def mean_summary(summaries: Sequence[SeedSummary]) -> SeedSummary:
    """Means over the seeds; dead recurrences are added up."""
    return SeedSummary(
        first_20=fmean(s.first_20 for s in summaries),
        first_50=fmean(s.first_50 for s in summaries),
        overall=fmean(s.overall for s in summaries),
        last_five=fmean(s.last_five for s in summaries),
        max_loss=fmean(s.max_loss for s in summaries),
        against_default=fmean(s.against_default for s in summaries),
        dead=sum(s.dead for s in summaries),
    )


def _default_cost_joules(scenario: Scenario, default_costs: Sequence[float]) -> float:
    """Expected cost of a recurrence of policy default; what it paid on average where it never arrives."""
    size = scenario.trace.by_batch_size[scenario.default_batch_size]
    target = scenario.target_in_force(0)
    expected = scenario.trace.expected_cost_joules(size.batch_size, target, scenario.max_epochs, size.unoptimised)
    return expected if expected < float("inf") else fmean(default_costs)
