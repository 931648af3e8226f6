"""Many simulations at once: a task a job and seed, on all cores, in one order whatever finishes first."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wattloop_planner.bandit.policies import policy_named
from wattloop_planner.bandit.policy import NoFeasibleArmError
from wattloop_planner.observations import Observation
from wattloop_planner.processes import in_processes
from wattloop_planner.simulation.options import JobOptions
from wattloop_planner.simulation.simulator import Scenario, SimulatedAttempt, simulate
from wattloop_planner.simulation.summary import SeedSummary, summarise

# Below this many recurrences in all, starting processes takes longer than simulating.
WORTH_PROCESSES = 2000
WINDOWED = {"thompsonSampling", "zeus"}


@dataclass(frozen=True)
class Task:
    """One job under one seed.

    Attributes:
        options: The job as asked for.
        scenario: The same with its traces.
        seed: The seed.
        known: Observations the policy starts from.
    """

    options: JobOptions
    scenario: Scenario
    seed: int
    known: tuple[Observation, ...] = ()


@dataclass(frozen=True)
class TaskResult:
    """What a task came to.

    Attributes:
        attempts: All attempts, up to the one that had no arm where the policy ran out of them.
        summary: Their sums; None where the policy ran out of arms.
        failure: Why the policy ran out of arms; empty otherwise.
    """

    attempts: list[SimulatedAttempt]
    summary: SeedSummary | None
    failure: str = ""


def run_task(task: Task) -> TaskResult:
    """Simulate one job under one seed, and policy default beside it to compare."""
    settings: dict[str, Any] = {"describe_arms": False} if task.options.policy == "thompsonSampling" else {}
    if task.options.window is not None and task.options.policy in WINDOWED:
        settings["window"] = task.options.window
    default_scenario = replace(task.scenario, optimise_power=False)
    default_attempts = list(simulate(default_scenario, policy_named("default"), task.seed))
    if task.options.policy == "default":
        return TaskResult(default_attempts, summarise(task.scenario, default_attempts, default_attempts))
    attempts: list[SimulatedAttempt] = []
    try:
        for done in simulate(task.scenario, policy_named(task.options.policy, **settings), task.seed, task.known):
            attempts.append(done)  # noqa: PERF402 — those before an error count
    except NoFeasibleArmError as error:
        return TaskResult(attempts, None, str(error))
    return TaskResult(attempts, summarise(task.scenario, attempts, default_attempts))


def run_tasks(tasks: Sequence[Task], done: Callable[[Task], None]) -> list[TaskResult]:
    """Run all tasks, in other processes where that is worth it.

    Args:
        tasks: The tasks.
        done: Told each task that has finished.

    Returns:
        Their results, in the order of the tasks.

    Raises:
        wattloop.interruption.Interrupted: The program was asked to end; the other processes have ended.
    """
    cores = min(len(os.sched_getaffinity(0)), len(tasks))
    if cores < 2 or sum(task.scenario.recurrences for task in tasks) < WORTH_PROCESSES:
        results = []
        for task in tasks:
            results.append(run_task(task))
            done(task)
        return results
    return in_processes(run_task, tasks, cores, done)
