"""Recurrences of several jobs that arrive while others run: their file, their tasks and their results."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from wattloop.errors import InputError, UsageError
from wattloop.files.csv_table import read_table
from wattloop.wire.message_fields import shown
from wattloop_planner.observations import Outcome
from wattloop_research.simulation.cluster_trace import arrival_seconds
from wattloop_research.simulation.overlapping_recurrences import (
    ArrivalsResult,
    ArrivingJob,
    TimedAttempt,
    simulate_arrivals,
)
from wattloop_research.simulation.policies import policy_named
from wattloop_research.simulation.process_pool import map_in_processes
from wattloop_research.simulation.simulation_options import JobOptions
from wattloop_research.simulation.tasks import MIN_RECURRENCES_FOR_PROCESSES, Task, policy_settings

ARRIVAL_COLUMNS = ("arrival_seconds", "job")


@dataclass(frozen=True)
class ArrivalTask:
    """Jobs that share a cluster under one seed; without a bound on what runs at once, one job.

    Attributes:
        tasks: The jobs.
        arrivals: Seconds of the recurrences of each.
        slots: Recurrences that can run at once; None: any number.
        overlap: What policy zeus runs while attempts are in flight.
    """

    tasks: tuple[Task, ...]
    arrivals: tuple[tuple[float, ...], ...]
    slots: int | None
    overlap: str

    @property
    def recurrences(self) -> int:
        """Number of recurrences of all jobs."""
        return sum(len(each) for each in self.arrivals)


@dataclass(frozen=True)
class ArrivalOutcome:
    """One job under one seed.

    Attributes:
        task: The job and the seed.
        arrivals: Seconds of its recurrences.
        result: Its attempts.
        default_result: Its attempts under policy `default`, on the same arrivals and slots.
    """

    task: Task
    arrivals: tuple[float, ...]
    result: ArrivalsResult
    default_result: ArrivalsResult


@dataclass(frozen=True)
class ArrivalTotals:
    """Sums over recurrences.

    Attributes:
        recurrences: Number of recurrences that ran.
        energy_joules: Energy of all attempts.
        time_seconds: Time of all attempts.
        cost_joules: Cost of all attempts.
        waiting_seconds: Time from arrivals to the starts of the first attempts.
        overlapping: Attempts that were decided while others of their job ran.
        attempts: Number of attempts.
        unreached: Recurrences that did not reach the target.
    """

    recurrences: float
    energy_joules: float
    time_seconds: float
    cost_joules: float
    waiting_seconds: float
    overlapping: float
    attempts: float
    unreached: float


def read_arrivals(path: str, jobs: Sequence[JobOptions]) -> dict[str, tuple[float, ...]]:
    """The arrivals of each job that has any.

    Args:
        path: A CSV file with the columns of `ARRIVAL_COLUMNS`, in order of time.
        jobs: The jobs that it may name.

    Raises:
        InputError: A row is invalid, earlier than the row before, or names another job.
    """
    names = {job.job for job in jobs}
    found: dict[str, list[float]] = {}
    last = 0.0
    for row in read_table(path, ARRIVAL_COLUMNS):
        seconds, name = arrival_seconds(row, last), row.text("job")
        if name not in names:
            known = ", ".join(sorted(names)[:10]) + (", …" if len(names) > 10 else "")
            raise InputError(row.source, shown(name), f"the name of a job of --jobs: {known}", row.line, "job")
        last = seconds
        found.setdefault(name, []).append(seconds)
    if not found:
        raise InputError(path, "no row below the header", "one row per recurrence", 2, 1)
    return {name: tuple(arrivals) for name, arrivals in found.items()}


def check_arriving(jobs: Sequence[JobOptions], slots: int | None) -> None:
    """Check that the options of the jobs have a meaning where recurrences arrive.

    Raises:
        UsageError: They do not.
    """
    seen: set[str] = set()
    for job in jobs:
        if job.job in seen:
            raise UsageError(f"job {job.job} is in --jobs twice; the rows of --arrivals name one job each: rename one")
        seen.add(job.job)
        if job.recurrences is not None:
            raise UsageError(
                f"job {job.job} has {job.recurrences} recurrences, but with --arrivals it has one per arrival: leave "
                "recurrences out, or auto"
            )
        if job.switch_at is not None:
            raise UsageError(
                f"job {job.job} switches its target at a recurrence, and recurrences that overlap have no such moment: "
                "leave --switch-at and --switch-target-metric out"
            )
    if slots is not None and len({job.seeds for job in jobs}) > 1:
        raise UsageError("with --slots all jobs share a cluster under each seed: give all of them the same seeds")


def arrival_tasks(
    tasks: Sequence[Task], arrivals: Mapping[str, tuple[float, ...]], slots: int | None, overlap: str
) -> list[ArrivalTask]:
    """The tasks of a simulation: one per seed if the jobs share slots, else one per job and seed.

    Args:
        tasks: The jobs under their seeds.
        arrivals: The arrivals by job; a job without any is left out.
        slots: Recurrences that can run at once; None: any number.
        overlap: What policy zeus runs while attempts are in flight.
    """
    arriving = [
        replace(task, scenario=replace(task.scenario, recurrences=len(arrivals[task.options.job])))
        for task in tasks
        if task.options.job in arrivals
    ]
    groups: dict[object, list[Task]] = {}
    for task in arriving:
        groups.setdefault(task.seed if slots is not None else (task.seed, task.options.job), []).append(task)
    return [
        ArrivalTask(tuple(group), tuple(arrivals[task.options.job] for task in group), slots, overlap)
        for group in groups.values()
    ]


def run_arrival_task(task: ArrivalTask) -> list[ArrivalOutcome]:
    """Simulate the jobs of a task, and the same jobs under policy `default` for comparison."""
    seed = task.tasks[0].seed
    pairs = list(zip(task.tasks, task.arrivals, strict=True))
    defaults = simulate_arrivals(
        [
            ArrivingJob(replace(each.scenario, optimise_power=False), policy_named("default"), arrivals)
            for each, arrivals in pairs
        ],
        seed,
        task.slots,
    )
    results = simulate_arrivals([_arriving(task, each, arrivals) for each, arrivals in pairs], seed, task.slots)
    return [
        ArrivalOutcome(each, arrivals, result, default)
        for (each, arrivals), result, default in zip(pairs, results, defaults, strict=True)
    ]


def _arriving(task: ArrivalTask, each: Task, arrivals: tuple[float, ...]) -> ArrivingJob:
    settings = policy_settings(each.options)
    if each.options.policy == "zeus":
        from wattloop_planner.bandit.zeus_policy import Overlap  # noqa: PLC0415 - needs NumPy

        settings["overlap"] = Overlap(task.overlap)
    optimised = each.options.policy != "default"
    scenario = replace(each.scenario, optimise_power=optimised)
    return ArrivingJob(scenario, policy_named(each.options.policy, **settings), arrivals, each.known)


def run_arrival_tasks(tasks: Sequence[ArrivalTask], on_done: Callable[[ArrivalTask], None]) -> list[ArrivalOutcome]:
    """Run all tasks, in worker processes if that is faster; the results are in the order of the tasks.

    Raises:
        wattloop.interruption.Interrupted: The program was asked to end; the workers have ended.
    """
    cores = min(len(os.sched_getaffinity(0)), len(tasks))
    if cores < 2 or sum(task.recurrences for task in tasks) < MIN_RECURRENCES_FOR_PROCESSES:
        found = []
        for task in tasks:
            found.append(run_arrival_task(task))
            on_done(task)
    else:
        found = map_in_processes(run_arrival_task, tasks, cores, on_done)
    return [outcome for outcomes in found for outcome in outcomes]


def totals_of(arrivals: Sequence[float], attempts: Sequence[TimedAttempt]) -> ArrivalTotals:
    """The sums of one job under one seed."""
    results = [each.simulated.result for each in attempts]
    first = [each for each in attempts if each.simulated.attempt == 0]
    reached = {each.simulated.recurrence for each in attempts if each.simulated.result.outcome is Outcome.REACHED}
    return ArrivalTotals(
        recurrences=len(first),
        energy_joules=sum(each.energy_joules for each in results),
        time_seconds=sum(each.time_seconds for each in results),
        cost_joules=sum(each.cost_joules for each in results),
        waiting_seconds=sum(each.start_seconds - arrivals[each.simulated.recurrence] for each in first),
        overlapping=sum(each.in_flight > 0 for each in attempts),
        attempts=len(attempts),
        unreached=len(first) - len(reached),
    )


def mean_totals(totals: Sequence[Sequence[ArrivalTotals]]) -> ArrivalTotals:
    """Sums over jobs, as means over seeds.

    Args:
        totals: By seed, the sums of each job.
    """
    names = ArrivalTotals.__dataclass_fields__
    means = {name: fmean(sum(getattr(job, name) for job in of_seed) for of_seed in totals) for name in names}
    return ArrivalTotals(**means)
