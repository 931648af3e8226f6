"""Recurrences of several jobs that arrive while others run: their file, and the sums of their results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from wattloop.errors import InputError, UsageError
from wattloop.files.csv_table import read_table
from wattloop.wire.message_fields import shown
from wattloop_planner.observations import Outcome
from wattloop_research.simulation.cluster_trace import arrival_seconds
from wattloop_research.simulation.simulation_options import JobOptions
from wattloop_research.simulation.simulator import SimulatedAttempt
from wattloop_research.simulation.tasks import Task, TaskGroup

ARRIVAL_COLUMNS = ("arrival_seconds", "job")


@dataclass(frozen=True)
class ArrivalTotals:
    """Sums over recurrences.

    Attributes:
        waiting_seconds: Time from arrivals to the starts of the first attempts.
        overlapping: Attempts that were decided while others of their job ran.
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


def arriving_groups(
    tasks: Sequence[Task], arrivals: Mapping[str, tuple[float, ...]], slots: int | None, overlap: str
) -> list[TaskGroup]:
    """The groups of a simulation: one per seed if the jobs share slots, else one per job and seed.

    Args:
        tasks: The jobs under their seeds.
        arrivals: The arrivals by job; a job without any is left out.
        slots: Recurrences that can run at once; None: any number.
        overlap: What policy zeus runs while attempts are in flight.
    """
    groups: dict[object, list[Task]] = {}
    for task in tasks:
        job = task.options.job
        if job in arrivals:
            arriving = replace(task, scenario=replace(task.scenario, recurrences=len(arrivals[job])))
            groups.setdefault(task.seed if slots is not None else (task.seed, job), []).append(arriving)
    return [
        TaskGroup(tuple(group), tuple(arrivals[task.options.job] for task in group), slots, overlap)
        for group in groups.values()
    ]


def totals_of(arrivals: Sequence[float], attempts: Sequence[SimulatedAttempt]) -> ArrivalTotals:
    """The sums of one job under one seed."""
    results = [each.result for each in attempts]
    first = [each for each in attempts if each.attempt == 0]
    reached = {each.recurrence for each in attempts if each.result.outcome is Outcome.REACHED}
    return ArrivalTotals(
        recurrences=len(first),
        energy_joules=sum(each.energy_joules for each in results),
        time_seconds=sum(each.time_seconds for each in results),
        cost_joules=sum(each.cost_joules for each in results),
        waiting_seconds=sum(each.start_seconds - arrivals[each.recurrence] for each in first),
        overlapping=sum(each.in_flight > 0 for each in attempts),
        attempts=len(attempts),
        unreached=len(first) - len(reached),
    )


def mean_totals(totals: Sequence[Sequence[ArrivalTotals]]) -> ArrivalTotals:
    """Sums over jobs, as means over seeds."""
    names = ArrivalTotals.__dataclass_fields__
    means = {name: fmean(sum(getattr(job, name) for job in of_seed) for of_seed in totals) for name in names}
    return ArrivalTotals(**means)
