"""Tasks of a simulation, one per job and seed: preparation, and execution on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from wattloop_planner.bandit.policy import NoFeasibleArmError
from wattloop_planner.observations import Observation
from wattloop_research.simulation.attempt_rows import earlier_observations, read_history
from wattloop_research.simulation.job_trace import JobTrace, check_default, job_trace
from wattloop_research.simulation.policies import policy_named
from wattloop_research.simulation.process_pool import map_in_processes
from wattloop_research.simulation.simulation_options import JobOptions
from wattloop_research.simulation.simulation_summary import SeedSummary, summarise
from wattloop_research.simulation.simulator import Scenario, SimulatedAttempt, simulate
from wattloop_research.simulation.traces import TracedWorkload, read_power_trace, read_train_trace

# Below this total number of recurrences, starting processes takes longer than the simulation.
MIN_RECURRENCES_FOR_PROCESSES = 2000
WINDOWED_POLICIES = {"thompsonSampling", "zeus"}


@dataclass(frozen=True)
class Task:
    """One job under one seed.

    Attributes:
        options: The options of the job.
        scenario: The job with its traces.
        seed: The seed.
        known: Initial observations.
    """

    options: JobOptions
    scenario: Scenario
    seed: int
    known: tuple[Observation, ...] = ()


@dataclass(frozen=True)
class TaskResult:
    """The result of a task.

    Attributes:
        attempts: All attempts, until the end or until no feasible arm was left.
        summary: Summary of the attempts; None if no feasible arm was left.
        failure: Why no feasible arm was left, or empty.
    """

    attempts: list[SimulatedAttempt]
    summary: SeedSummary | None
    failure: str = ""


class TraceFiles:
    """Reads each trace file once."""

    def __init__(self) -> None:
        self.train = cache(read_train_trace)
        self.power = cache(read_power_trace)
        self.history = cache(read_history)
        self._jobs: dict[object, JobTrace] = {}

    def job(self, options: JobOptions) -> JobTrace:
        """The traces of a job, which all jobs of the same workload share.

        Raises:
            InputError: A trace is invalid, or does not contain the job.
            UsageError: The default batch size is not offered.
        """
        train, power = self.train(options.train), self.power(options.power)
        workload = TracedWorkload(options.dataset, options.network, options.optimizer)
        switched = () if options.switch_target_metric is None else (options.switch_target_metric,)
        targets = (options.target_metric, *switched)
        key = (options.train, options.power, workload, targets, options.eta, tuple(options.parameters))
        if key not in self._jobs:
            self._jobs[key] = job_trace(
                train, power, workload=workload, targets=targets, eta=options.eta, parameters=options.parameters
            )
        check_default(self._jobs[key], options.default_batch_size, train, power)
        return self._jobs[key]


def tasks_of(options: JobOptions, files: TraceFiles) -> list[Task]:
    """The tasks of a job, one per seed.

    Args:
        options: The options of the job.
        files: The reader of trace files.

    Raises:
        InputError: A trace is invalid, or does not contain the job.
        UsageError: The default batch size is not offered.
    """
    trace = files.job(options)
    scenario = Scenario(
        job=options.job,
        gpu=options.gpu,
        trace=trace,
        target_metric=options.target_metric,
        max_epochs=options.max_epochs,
        default_batch_size=options.default_batch_size,
        recurrences=options.recurrences or trace.automatic_recurrences,
        stop=options.stop,
        switch_at=options.switch_at,
        switch_target_metric=options.switch_target_metric,
        with_curves=options.curves,
    )
    if options.history is None:
        return [Task(options, scenario, seed) for seed in options.seeds]
    rows = files.history(options.history)
    return [Task(options, scenario, seed, earlier_observations(rows, options, seed)) for seed in options.seeds]


def policy_settings(options: JobOptions) -> dict[str, Any]:
    """The settings of a job's policy; arms are not described, which takes time."""
    settings: dict[str, Any] = {"describe_arms": False} if options.policy == "thompsonSampling" else {}
    if options.window is not None and options.policy in WINDOWED_POLICIES:
        settings["window"] = options.window
    return settings


def run_task(task: Task) -> TaskResult:
    """Simulate one job under one seed, and policy `default` for comparison."""
    default_scenario = replace(task.scenario, optimise_power=False)
    default_attempts = list(simulate(default_scenario, policy_named("default"), task.seed))
    if task.options.policy == "default":
        return TaskResult(default_attempts, summarise(task.scenario, default_attempts, default_attempts))
    attempts: list[SimulatedAttempt] = []
    try:
        for attempt in simulate(
            task.scenario, policy_named(task.options.policy, **policy_settings(task.options)), task.seed, task.known
        ):
            attempts.append(attempt)  # noqa: PERF402 - attempts before an error count
    except NoFeasibleArmError as error:
        return TaskResult(attempts, None, str(error))
    return TaskResult(attempts, summarise(task.scenario, attempts, default_attempts))


def run_tasks(tasks: Sequence[Task], on_done: Callable[[Task], None]) -> list[TaskResult]:
    """Run all tasks, in worker processes if that is faster.

    Args:
        tasks: The tasks.
        on_done: Called with each task that has finished.

    Returns:
        The results, in the order of the tasks.

    Raises:
        wattloop.interruption.Interrupted: The program was asked to end; the workers have ended.
    """
    cores = min(len(os.sched_getaffinity(0)), len(tasks))
    if cores < 2 or sum(task.scenario.recurrences for task in tasks) < MIN_RECURRENCES_FOR_PROCESSES:
        results = []
        for task in tasks:
            results.append(run_task(task))
            on_done(task)
        return results
    return map_in_processes(run_task, tasks, cores, on_done)
