"""The trace of a cluster: groups of trainings that recur, and which measured workload each of them is taken for.

As Zeus does for the trace of Alibaba (NSDI '23, section 6.1): the mean durations of the groups are divided into as many
clusters as there are workloads, by k-means, and clusters and workloads are matched in the order of their mean
durations. In one dimension the best clusters are intervals, so they are found exactly, without random starts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

import numpy as np

from wattloop.errors import InputError, UsageError
from wattloop.files.csv_table import Row, read_table
from wattloop_research.simulation.simulator import Scenario

GROUP_COLUMNS = ("model", "batch_size", "gpus")
THROUGHPUT_COLUMNS = ("gpu_model", "model", "batch_size", "gpus", "steps_per_second")


@dataclass(frozen=True)
class TraceGroup:
    """Trainings of a trace that are recurrences of one job."""

    name: str
    arrivals: tuple[float, ...]
    durations: tuple[float, ...]

    @property
    def mean_seconds(self) -> float:
        """Mean duration."""
        return fmean(self.durations)


@dataclass(frozen=True)
class Throughputs:
    """Measured steps per second of trainings alone on their GPUs.

    Attributes:
        by_training: By (model, batch size) and number of GPUs.
    """

    source: str
    gpu_model: str
    by_training: Mapping[tuple[str, str], Mapping[int, float]]

    def of(self, row: Row) -> float:
        """Steps per second of a training: measured with its number of GPUs, else with the next lower one.

        Raises:
            InputError: The training was not measured with as few GPUs.
        """
        training = (row.cells["model"], row.cells["batch_size"])
        gpus = row.integer("gpus", minimum=1)
        measured = self.by_training.get(training, {})
        fitting = [number for number in measured if number <= gpus]
        if not fitting:
            found = f"{training[0]} with batch size {training[1] or '(none)'} on {gpus} GPUs"
            raise InputError(row.source, found, f"a training of {self.source} on {self.gpu_model}", row.line, "model")
        return measured[max(fitting)]


def arrival_seconds(row: Row, last: float) -> float:
    """When the recurrence of a row arrives.

    Args:
        row: A row of a trace or of `--arrivals`.
        last: The arrival of the row before.

    Raises:
        InputError: It is earlier than the row before.
    """
    seconds = row.number("arrival_seconds", minimum=0)
    if seconds < last:
        raise InputError(
            row.source,
            f"{seconds:g}, which is before the {last:g} of the row above",
            "arrivals in order of time; sort the file by this column",
            row.line,
            "arrival_seconds",
        )
    return seconds


def read_throughputs(path: str, gpu_model: str) -> Throughputs:
    """Read the rows of one GPU model without another training beside.

    Raises:
        InputError: A row is invalid, or the file has no such model.
    """
    found: dict[tuple[str, str], dict[int, float]] = {}
    models: set[str] = set()
    for row in read_table(path, THROUGHPUT_COLUMNS):
        models.add(row.cells["gpu_model"])
        if row.cells["gpu_model"] == gpu_model and not row.cells.get("beside_model", ""):
            speed = row.number("steps_per_second", minimum=0)
            if speed > 0:
                training = (row.cells["model"], row.cells["batch_size"])
                found.setdefault(training, {})[row.integer("gpus", minimum=1)] = speed
    if not found:
        raise InputError(
            path, f"no row of GPU model {gpu_model!r}", f"one of {', '.join(sorted(models))}", 2, "gpu_model"
        )
    return Throughputs(path, gpu_model, found)


def read_cluster_trace(path: str, throughputs: Throughputs | None = None) -> list[TraceGroup]:
    """Read the groups of a trace, in the order of their first arrivals.

    Args:
        path: A CSV file in order of time with ``arrival_seconds``, and either ``group,duration_seconds`` or
            ``model,batch_size,gpus,steps``; the latter three name the group, and its duration is steps by steps per
            second.
        throughputs: Steps per second, for a file without durations.

    Raises:
        InputError: A row is invalid, or earlier than the row before.
        UsageError: The file has no durations, and there are no throughputs.
    """
    found: dict[str, tuple[list[float], list[float]]] = {}
    last = 0.0
    for row in read_table(path, ("arrival_seconds",), ("duration_seconds", "steps")):
        seconds = last = arrival_seconds(row, last)
        name, duration = _training(row, throughputs)
        arrivals, durations = found.setdefault(name, ([], []))
        arrivals.append(seconds)
        durations.append(duration)
    if not found:
        raise InputError(path, "no row below the header", "one row per training", 2, 1)
    return [TraceGroup(name, tuple(arrivals), tuple(durations)) for name, (arrivals, durations) in found.items()]


def _training(row: Row, throughputs: Throughputs | None) -> tuple[str, float]:
    if "duration_seconds" in row.cells:
        return row.text("group"), row.number("duration_seconds", above=0)
    missing = next((column for column in (*GROUP_COLUMNS, "steps") if column not in row.cells), None)
    if missing is not None:
        raise InputError(row.source, "no such column", f"the columns {', '.join(GROUP_COLUMNS)} and steps", 1, missing)
    if throughputs is None:
        raise UsageError(
            f"{row.source} has steps and no durations: give --throughputs FILE and --gpu-model NAME, by which steps "
            "become seconds"
        )
    parts = (row.text("model"), row.cells["batch_size"], row.text("gpus"))
    return "-".join(part for part in parts if part), row.number("steps", above=0) / throughputs.of(row)


def clusters_of(values: Sequence[float], count: int) -> list[int]:
    """The cluster of each value, from 0 for the smallest values: least sum of squares of the distances from the means.

    Args:
        values: At least one.
        count: Number of clusters; fewer are used if there are fewer distinct values.

    Example:
        >>> clusters_of([1.0, 100.0, 2.0, 90.0, 9000.0], 3)
        [0, 1, 0, 1, 2]
    """
    distinct = sorted(set(values))
    weights = np.array([values.count(value) for value in distinct], dtype=float)
    points = np.array(distinct)
    starts = _interval_starts(points, weights, min(count, len(distinct)))
    return [int(np.searchsorted(points[starts], value, side="right")) - 1 for value in values]


def _interval_starts(points: np.ndarray, weights: np.ndarray, count: int) -> list[int]:
    """Indices of the first points of the intervals, by dynamic programming over the number of intervals."""
    number = len(points)
    # Around the mean, so that differences of squares keep their digits.
    centred = points - points.mean()
    mass, first, second = (np.array([0.0, *accumulate((weights * centred**power).tolist())]) for power in (0, 1, 2))

    def spread(begin: np.ndarray, end: int) -> np.ndarray:
        moment = first[end] - first[begin]
        return np.asarray(second[end] - second[begin] - moment**2 / (mass[end] - mass[begin]))

    cost = np.array([math.inf] * (number + 1))
    cost[0] = 0.0
    chosen: list[list[int]] = []
    for _ in range(count):
        following, begins = np.full(number + 1, math.inf), [0] * (number + 1)
        for end in range(1, number + 1):
            totals = cost[:end] + spread(np.arange(end), end)
            begins[end] = int(totals.argmin())
            following[end] = totals[begins[end]]
        cost, chosen = following, [*chosen, begins]
    starts, end = [], number
    for begins in reversed(chosen):
        end = begins[end]
        starts.append(end)
    return starts[::-1]


def expected_seconds(scenario: Scenario) -> float:
    """Expected time of a recurrence with the default batch size at the highest limit; infinite if it never reaches."""
    default = scenario.trace.default(scenario.default_batch_size)
    epochs = scenario.trace.expected_cost_joules(
        default.configuration, scenario.target_metric, scenario.max_epochs, default.unoptimised
    )
    return epochs / default.unoptimised.cost_joules * default.unoptimised.time_seconds


def assigned_workloads(groups: Sequence[TraceGroup], seconds: Sequence[float]) -> list[int]:
    """The index of the workload of each group.

    Args:
        groups: The groups.
        seconds: Expected time of a recurrence of each workload.
    """
    order = sorted(range(len(seconds)), key=lambda index: (seconds[index], index))
    return [order[cluster] for cluster in clusters_of([group.mean_seconds for group in groups], len(order))]
