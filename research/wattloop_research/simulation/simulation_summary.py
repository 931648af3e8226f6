"""Summary of a simulation: cost relative to the best fixed choice, and loss against policy `default`."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean
from typing import Any

from wattloop_planner.observations import Outcome
from wattloop_research.simulation.simulator import Scenario, SimulatedAttempt


@dataclass(frozen=True)
class SeedSummary:
    """Summary of one job under one seed.

    Attributes:
        first_20: Cost of the first 20 recurrences, divided by the expected cost of the best fixed choice,
            retries included.
        first_50: The same for the first 50 recurrences.
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
    best = best_fixed_costs(scenario)
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


def best_fixed_costs(scenario: Scenario) -> list[float]:
    """Expected cost of each recurrence with the best fixed choice for its target, in joules."""
    targets = [scenario.target_of(recurrence) for recurrence in range(scenario.recurrences)]
    best = {target: scenario.trace.best_fixed_cost_joules(target, scenario.max_epochs) for target in set(targets)}
    return [best[target] for target in targets]


def costs_by_recurrence(recurrences: int, attempts: Sequence[SimulatedAttempt]) -> list[float]:
    """Cost of each recurrence over all its attempts, in joules."""
    costs = [0.0] * recurrences
    for attempt in attempts:
        costs[attempt.recurrence] += attempt.result.cost_joules
    return costs


def mean_summary(summaries: Sequence[SeedSummary]) -> SeedSummary:
    """Means over the seeds; the sum of dead recurrences."""
    means: dict[str, Any] = {
        name: fmean(getattr(each, name) for each in summaries) for name in SeedSummary.__dataclass_fields__
    }
    return SeedSummary(**{**means, "dead": sum(each.dead for each in summaries)})


def _default_cost_joules(scenario: Scenario, default_costs: Sequence[float]) -> float:
    """Expected cost of a recurrence of policy `default`; its mean cost if it never reaches the target."""
    default = scenario.trace.default(scenario.default_batch_size)
    target = scenario.target_of(0)
    expected = scenario.trace.expected_cost_joules(
        default.configuration, target, scenario.max_epochs, default.unoptimised
    )
    return expected if expected < float("inf") else fmean(default_costs)
