"""What better knowledge of the epochs would bring to policy `thompsonSampling`, on the jobs of benchmarks/bandit.py.

``python benchmarks/bandit_bounds.py [--seeds 20]`` prints the table of benchmarks/bandit.md. It compares policy
`thompsonSampling` with three oracles, of which the first two use it:

- "epochs known": before the first recurrence, each batch size has run once, at no cost, and took its mean epochs.
- "perfect stop": an oracle knows the expected cost of each arm. It stops a trial after the first epoch if the arm is
  not cheaper than the cheapest one known, and finishing the trial costs more than a run of that one. The policy then
  learns the arm's mean epochs as from a complete run. The choice of trials does not count on the oracle.
- "all known after one run": the first attempt has the default batch size, and each later one has the batch size of
  lowest expected cost. No policy that starts with the default costs less.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from bandit import HEADER
from bandit_jobs import FILES, LIMITED_DEFAULT_NEVER_REACHES, LIMITED_DEFAULT_REACHES, all_jobs, limited

from wattloop.energy.cost import CostModel
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.policy import ChoiceKind, Decision, DecisionContext, PartialObservation, Policy
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.observations import Observation, Outcome
from wattloop_research.simulation.overlapping_recurrences import simulate
from wattloop_research.simulation.policies import policy_named
from wattloop_research.simulation.process_pool import map_in_processes
from wattloop_research.simulation.simulation_options import JobOptions
from wattloop_research.simulation.simulation_summary import SeedSummary, mean_summary, summarise
from wattloop_research.simulation.simulator import Scenario
from wattloop_research.simulation.tasks import Task, tasks_of

VARIANTS = ("thompsonSampling", "epochs known", "perfect stop", "all known after one run")
# A stop at the end of the first epoch.
ONE_EPOCH = 1.001


class PerfectStopPolicy:
    """Policy `thompsonSampling` with an oracle that ends the trials that do not pay, and tells their epochs."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._policy = ThompsonSamplingPolicy(describe_arms=False)

    def decide(self, context: DecisionContext) -> Decision:
        """The decision after what the oracle told in earlier recurrences."""
        return self._policy.decide(self._informed(context))

    def review(self, context: DecisionContext, decision: Decision, partial: PartialObservation) -> float | None:
        """Stop a trial at once if neither the arm nor the rest of the run is cheaper than the cheapest known arm."""
        if decision.kind is not ChoiceKind.TRIAL or partial.epochs > ONE_EPOCH:
            return decision.stop_cost_joules
        reached = {each.batch_size for each in context.observations if each.outcome is Outcome.REACHED}
        cheapest = min(expected_cost(self._scenario, each) for each in reached)
        paid = CostModel(context.eta, partial.max_power_watts).cost_joules(partial.energy_joules, partial.time_seconds)
        pays = expected_cost(self._scenario, partial.batch_size) < cheapest + paid
        return decision.stop_cost_joules if pays else 0.0

    def _informed(self, context: DecisionContext) -> DecisionContext:
        told = tuple(
            typical_run(self._scenario, each.batch_size, each.recurrence, each.attempt)
            if each.outcome is Outcome.STOPPED and each.epochs <= ONE_EPOCH and each.recurrence < context.recurrence
            else each
            for each in context.observations
        )
        return replace(context, observations=told)


class BestAfterOneRunPolicy:
    """The default batch size in the first attempt, then the batch size of lowest expected cost."""

    def __init__(self, scenario: Scenario) -> None:
        self._best = min(scenario.trace.batch_sizes, key=lambda size: expected_cost(scenario, size))

    def decide(self, context: DecisionContext) -> Decision:
        """The decision, which depends on the attempt only."""
        is_first = context.recurrence == context.attempt == 0
        return Decision(context.default_batch_size if is_first else self._best, ChoiceKind.INCUMBENT, "")


def expected_cost(scenario: Scenario, batch_size: int) -> float:
    """Expected cost of a recurrence with a batch size at its best power limit, retries included."""
    chosen = scenario.trace.by_configuration[Configuration(batch_size)]
    return scenario.trace.expected_cost_joules(
        chosen.configuration, scenario.target_metric, scenario.max_epochs, chosen.best
    )


def typical_run(scenario: Scenario, batch_size: int, recurrence: int, attempt: int) -> Observation:
    """A run of a batch size that takes the mean epochs of the runs that reach the target within the limit.

    It is exhausted if at most half of the runs do.
    """
    chosen = scenario.trace.by_configuration[Configuration(batch_size)]
    paths = [path.target_epoch for path in scenario.trace.paths[scenario.target_metric][chosen.configuration]]
    reaching = [epochs for epochs in paths if epochs is not None and epochs <= scenario.max_epochs]
    reaches = 2 * len(reaching) > len(paths)
    epochs = fmean(reaching) if reaches else float(scenario.max_epochs)
    return Observation(
        recurrence=recurrence,
        attempt=attempt,
        batch_size=batch_size,
        outcome=Outcome.REACHED if reaches else Outcome.EXHAUSTED,
        epochs=epochs,
        energy_joules=epochs * chosen.best.energy_joules,
        time_seconds=epochs * chosen.best.time_seconds,
        max_power_watts=scenario.trace.max_power_watts,
        gpu_model=scenario.gpu,
        epoch_energy_joules=chosen.best.energy_joules,
        epoch_time_seconds=chosen.best.time_seconds,
    )


def run(item: tuple[str, Task]) -> SeedSummary:
    """Simulate a variant."""
    variant, task = item
    scenario = task.scenario
    default = list(simulate(replace(scenario, optimise_power=False), policy_named("default"), task.seed))
    policy: Policy
    if variant == "perfect stop":
        policy = PerfectStopPolicy(scenario)
    elif variant == "all known after one run":
        policy = BestAfterOneRunPolicy(scenario)
    else:
        policy = ThompsonSamplingPolicy(describe_arms=False)
    sizes = scenario.trace.batch_sizes if variant == "epochs known" else ()
    known = tuple(typical_run(scenario, size, index - len(sizes), 0) for index, size in enumerate(sizes))
    return summarise(scenario, list(simulate(scenario, policy, task.seed, known)), default)


def row(name: str, variant: str, jobs: Sequence[JobOptions]) -> str:
    """One row of the table: the mean over these jobs."""
    tasks = [(variant, task) for options in jobs for task in tasks_of(options, FILES)]
    results = iter(map_in_processes(run, tasks, len(os.sched_getaffinity(0)), lambda _: None))
    by_job = [[next(results) for _ in options.seeds] for options in jobs]
    means = [mean_summary(summaries) for summaries in by_job]
    mean = mean_summary(means)
    largest = max(summary.max_loss for summaries in by_job for summary in summaries)
    worst = max(each.against_default for each in means)
    ratios = (mean.first_20, mean.first_50, mean.overall, mean.last_five)
    figures = (*(f"{ratio:.3f}" for ratio in ratios), f"{mean.max_loss:.2f}", f"{largest:.2f}", f"{worst:.3f}")
    return f"| {name} | {variant} | {' | '.join(figures)} | {mean.dead} |"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    seeds, few = f"1-{arguments.seeds}", f"1-{max(1, arguments.seeds // 4)}"
    print(HEADER.replace("policy", "knowledge"), "|" + "---|" * (HEADER.count("|") - 1), sep="\n")
    for name, jobs in (
        ("published", all_jobs(seeds)),
        ("limit, default reaches", limited(LIMITED_DEFAULT_REACHES, few)),
        ("limit, default never reaches", limited(LIMITED_DEFAULT_NEVER_REACHES, few)),
    ):
        for variant in VARIANTS:
            print(row(name, variant, jobs), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
