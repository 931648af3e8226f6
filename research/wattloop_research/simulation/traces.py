"""Reads the two measured traces: epochs to each target, and time and power of an epoch at each limit.

A column ``param:NAME`` has the value of a further parameter. In the train file the column
``learning_rate`` does too, if a job chooses the learning rate.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wattloop.errors import InputError
from wattloop.files.csv_table import Row, read_table
from wattloop.power.selectors import MeasuredLimit
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.observations import PARAMETER_PREFIX, ParameterValues

TRAIN_COLUMNS = ("dataset", "network", "batch_size", "optimizer", "run", "target_metric", "target_epoch")
POWER_COLUMNS = ("dataset", "network", "batch_size", "optimizer", "power_limit", "time_per_epoch", "average_power")

LEARNING_RATE = "learning_rate"


class TracedWorkload(NamedTuple):
    """A training workload: the key of both traces."""

    dataset: str
    network: str
    optimizer: str

    def __str__(self) -> str:
        return f"dataset {self.dataset}, network {self.network}, optimizer {self.optimizer}"


class TrainingPath(NamedTuple):
    """One measured training run.

    Attributes:
        run: Number of the run in the trace.
        target_epoch: Epochs to the target; None if the run did not reach it.
        parameters: Value of each further parameter in the file, by name.
    """

    run: int
    target_epoch: float | None
    line: int
    parameters: ParameterValues = ()


@dataclass(frozen=True)
class TrainTrace:
    """Training paths by workload, target metric and batch size, ordered by run."""

    source: str
    paths: dict[TracedWorkload, dict[float, dict[int, tuple[TrainingPath, ...]]]]


@dataclass(frozen=True)
class PowerTrace:
    """One epoch at each power limit, by workload and configuration, in order of rising limits.

    A configuration has the parameters that the file has columns for.
    """

    source: str
    epochs: dict[TracedWorkload, dict[Configuration, tuple[MeasuredLimit, ...]]]
    max_power_watts: float


def read_train_trace(path: str | Path) -> TrainTrace:
    """Read the epochs that each training path took to each target.

    Raises:
        InputError: The file is invalid; the message names line and column.
    """
    paths: dict[TracedWorkload, dict[float, dict[int, list[TrainingPath]]]] = {}
    for row in read_table(path, TRAIN_COLUMNS):
        target_epoch = row.optional_number("target_epoch", minimum=0)
        if target_epoch == 0:
            raise InputError(row.source, "'0'", "epochs above 0, or empty for never", row.line, "target_epoch")
        found = TrainingPath(
            row.integer("run"), target_epoch, row.line, parameters_of_row(row, with_learning_rate=True)
        )
        by_target = paths.setdefault(_workload(row), {})
        by_size = by_target.setdefault(row.number("target_metric"), {})
        by_size.setdefault(row.integer("batch_size", minimum=1), []).append(found)
    if not paths:
        raise InputError(str(path), "no row below the header", "one row per training path and target", 2, 1)
    return TrainTrace(
        str(path),
        {
            workload: {
                target: {size: tuple(sorted(found, key=lambda p: p.run)) for size, found in by_size.items()}
                for target, by_size in by_target.items()
            }
            for workload, by_target in paths.items()
        },
    )


def read_power_trace(path: str | Path) -> PowerTrace:
    """Read time and energy of an epoch at each power limit.

    Raises:
        InputError: The file is invalid, or repeats a batch size and limit; the message names line and column.
    """
    epochs: dict[TracedWorkload, dict[Configuration, dict[float, tuple[int, MeasuredLimit]]]] = {}
    for row in read_table(path, POWER_COLUMNS):
        size, limit = row.integer("batch_size", minimum=1), row.number("power_limit", above=0)
        time, power = row.number("time_per_epoch", above=0), row.number("average_power", above=0)
        configuration = Configuration(size, parameters_of_row(row))
        limits = epochs.setdefault(_workload(row), {}).setdefault(configuration, {})
        if limit in limits:
            found = f"batch size {configuration} at {limit:g} W again, first on line {limits[limit][0]}"
            raise InputError(row.source, found, "each batch size and limit once", row.line, "power_limit")
        limits[limit] = (row.line, MeasuredLimit(limit, power * time, time))
    if not epochs:
        raise InputError(str(path), "no row below the header", "one row per batch size and power limit", 2, 1)
    by_workload = {
        workload: {
            configuration: tuple(limits[limit][1] for limit in sorted(limits))
            for configuration, limits in of_workload.items()
        }
        for workload, of_workload in epochs.items()
    }
    highest = max(m.power_limit_watts for found in by_workload.values() for limits in found.values() for m in limits)
    return PowerTrace(str(path), by_workload, highest)


def parameters_of_row(row: Row, *, with_learning_rate: bool = False) -> ParameterValues:
    """The parameters of a row, in the order of its columns; an empty cell has no value."""
    values = []
    for column in row.cells:
        named = column.startswith(PARAMETER_PREFIX) or (with_learning_rate and column == LEARNING_RATE)
        if named and row.cells[column]:
            values.append((column.removeprefix(PARAMETER_PREFIX), row.cells[column]))
    return tuple(values)


def _workload(row: Row) -> TracedWorkload:
    return TracedWorkload(row.text("dataset"), row.text("network"), row.text("optimizer"))
