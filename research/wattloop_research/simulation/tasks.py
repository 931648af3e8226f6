"""Tasks of a simulation, one per job and seed: preparation, and execution on all cores."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from wattloop_planner.observations import Observation
from wattloop_research.simulation.attempt_rows import earlier_observations, read_history
from wattloop_research.simulation.job_trace import JobTrace, check_default, job_trace
from wattloop_research.simulation.overlapping_recurrences import ArrivalsResult, ArrivingJob, simulate_arrivals
from wattloop_research.simulation.policies import policy_named
from wattloop_research.simulation.process_pool import map_in_processes
from wattloop_research.simulation.simulation_options import JobOptions
from wattloop_research.simulation.simulation_summary import SeedSummary, summarise
from wattloop_research.simulation.simulator import Scenario, SimulatedAttempt
from wattloop_research.simulation.traces import TracedWorkload, read_power_trace, read_train_trace

# Below this total number of recurrences, starting processes takes longer than the simulation.
MIN_RECURRENCES_FOR_PROCESSES = 2000
WINDOWED_POLICIES = {"thompsonSampling", "zeus"}


@dataclass(frozen=True)
class Task:
    """One job under one seed."""

    options: JobOptions
    scenario: Scenario
    seed: int
    known: tuple[Observation, ...] = ()


@dataclass(frozen=True)
class TaskGroup:
    """Jobs that share a cluster under one seed; without a bound on what runs at once, one job.

    Attributes:
        arrivals: Seconds at which the recurrences of each arrive.
        slots: Recurrences that can run at once; None: any number.
        overlap: What policy zeus runs while attempts are in flight; empty if none are.
    """

    tasks: tuple[Task, ...]
    arrivals: tuple[tuple[float, ...], ...]
    slots: int | None
    overlap: str = ""

    @property
    def recurrences(self) -> int:
        """Number of recurrences of all jobs."""
        return sum(len(each) for each in self.arrivals)


@dataclass(frozen=True)
class TaskResult:
    """One job under one seed.

    Attributes:
        default_result: Its attempts under policy `default`, on the same arrivals and slots.
    """

    task: Task
    arrivals: tuple[float, ...]
    result: ArrivalsResult
    default_result: ArrivalsResult

    @property
    def attempts(self) -> list[SimulatedAttempt]:
        """All attempts, until the end or until no feasible arm was left."""
        return self.result.attempts

    @property
    def failure(self) -> str:
        """Why no feasible arm was left, or empty."""
        return self.result.failure

    @cached_property
    def summary(self) -> SeedSummary | None:
        """Summary of the attempts; None if no feasible arm was left."""
        if self.failure:
            return None
        return summarise(self.task.scenario, self.attempts, self.default_result.attempts)


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


def in_sequence(task: Task) -> TaskGroup:
    """A job whose recurrences follow each other."""
    return TaskGroup((task,), ((0.0,) * task.scenario.recurrences,), slots=1)


def run_groups(groups: Sequence[TaskGroup], on_done: Callable[[TaskGroup], None]) -> list[TaskResult]:
    """Run all groups, in worker processes if that is faster; the results are in the order of the groups.

    Args:
        groups: The jobs.
        on_done: Called with each group that has finished.

    Raises:
        wattloop.interruption.Interrupted: The program was asked to end; the workers have ended.
    """
    cores = min(len(os.sched_getaffinity(0)), len(groups))
    if cores < 2 or sum(group.recurrences for group in groups) < MIN_RECURRENCES_FOR_PROCESSES:
        found = []
        for group in groups:
            found.append(_run_group(group))
            on_done(group)
    else:
        found = map_in_processes(_run_group, groups, cores, on_done)
    return [
        TaskResult(task, arrivals, result, default)
        for group, results in zip(groups, found, strict=True)
        for task, arrivals, (result, default) in zip(group.tasks, group.arrivals, results, strict=True)
    ]


def _run_group(group: TaskGroup) -> list[tuple[ArrivalsResult, ArrivalsResult]]:
    """Simulate the jobs of a group, and the same jobs under policy `default` for comparison."""
    seed, slots = group.tasks[0].seed, group.slots
    pairs = list(zip(group.tasks, group.arrivals, strict=True))
    default = policy_named("default")
    of_default = [
        ArrivingJob(replace(each.scenario, optimise_power=False), default, arrivals) for each, arrivals in pairs
    ]
    defaults = simulate_arrivals(of_default, seed, slots)
    if all(each.options.policy == "default" for each in group.tasks):
        return list(zip(defaults, defaults, strict=True))
    jobs = [_arriving(each, arrivals, group.overlap) for each, arrivals in pairs]
    return list(zip(simulate_arrivals(jobs, seed, slots), defaults, strict=True))


def _arriving(task: Task, arrivals: tuple[float, ...], overlap: str) -> ArrivingJob:
    options = task.options
    # Arms are not described, which takes time.
    settings: dict[str, Any] = {"describe_arms": False} if options.policy == "thompsonSampling" else {}
    if options.window is not None and options.policy in WINDOWED_POLICIES:
        settings["window"] = options.window
    if options.policy == "zeus" and overlap:
        from wattloop_planner.bandit.zeus_policy import Overlap  # noqa: PLC0415 - needs NumPy

        settings["overlap"] = Overlap(overlap)
    scenario = replace(task.scenario, optimise_power=options.policy != "default")
    return ArrivingJob(scenario, policy_named(options.policy, **settings), arrivals, task.known)
