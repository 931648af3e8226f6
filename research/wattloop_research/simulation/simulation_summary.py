"""Summary of a simulation: cost relative to the best fixed choice, and loss against policy `default`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

from wattloop_planner.observations import Outcome
from wattloop_research.simulation.simulator import Scenario, SimulatedAttempt


@dataclass(frozen=True)
class SeedSummary:
    """Summary of one job under one seed.

    Attributes:
        first_20: Cost of the first 20 recurrences, divided by the expected cost of the best fixed choice,
            retries included.
        first_50: The same for the first 50 recurrences.
        overall: The same for all recurrences.
        last_five: The same for the last five recurrences.
        max_loss: Largest cumulative cost above policy `default` on the same seed, in expected recurrences
            of policy `default`.
        against_default: Total cost divided by that of policy `default` on the same seed.
        dead: Number of recurrences that never reached the target.
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
    """Summarise one seed, compared with policy `default` on the same seed."""
    costs = costs_by_recurrence(scenario.recurrences, attempts)
    default_costs = costs_by_recurrence(scenario.recurrences, default_attempts)
    best = [
        scenario.trace.best_fixed_cost_joules(scenario.target_of(i), scenario.max_epochs)
        for i in range(scenario.recurrences)
    ]
    losses = accumulate(cost - default for cost, default in zip(costs, default_costs, strict=True))
    reached = {each.recurrence for each in attempts if each.result.outcome is Outcome.REACHED}
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
    """Cost of each recurrence over all its attempts, in joules."""
    costs = [0.0] * recurrences
    for attempt in attempts:
        costs[attempt.recurrence] += attempt.result.cost_joules
    return costs


def mean_summary(summaries: Sequence[SeedSummary]) -> SeedSummary:
    """Means over the seeds; the sum of dead recurrences."""
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
    """Expected cost of a recurrence of policy `default`; its mean cost if it never reaches the target."""
    default = scenario.trace.default(scenario.default_batch_size)
    target = scenario.target_of(0)
    expected = scenario.trace.expected_cost_joules(
        default.configuration, target, scenario.max_epochs, default.unoptimised
    )
    return expected if expected < float("inf") else fmean(default_costs)
