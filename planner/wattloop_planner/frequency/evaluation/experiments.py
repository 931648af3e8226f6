"""Finds the experiments of a folder: dumps of runs in ``…/GPU/group/experiment``, and tables of their baselines.

The layout is that of the published artifact. Perseus' plans are in ``perseus/GPU/parallelism/experiment``,
EnvPipe's in ``envpipe/…``, the power-limit baselines in ``zeus/raw/GPU/zeus_global/experiment`` and
``zeus_local``, summarised in ``zeus/csv/GPU/zeus_global.csv``. The name of an experiment says what it is, so
folders of one's own need only the last three levels.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wattloop.errors import InputError, OperationError
from wattloop.files.csv_table import Row, read_table
from wattloop.pipeline.experiment_name import EXPECTED_NAME, ExperimentName, PipelineWorkload, parse_experiment_name
from wattloop_planner.frequency.evaluation.measured_savings import MeasuredPoint
from wattloop_planner.frequency.files.recorded_run_file import RUN_FILE, read_runs
from wattloop_planner.frequency.pipeline.plans import Realised
from wattloop_planner.frequency.recorded_runs import RunSummary, run_summary

# Schedulers of the artifact, by the last part of an experiment's name. Its scheduler for data and tensor
# parallelism runs no plan to warm up.
PLANS, PLANS_3D, ENVPIPE = "PointSolution", "PointSolution3D", "EnvPipe"
GLOBAL_LIMIT, STAGE_LIMITS = "ZeusGlobalPowerLimit", "ZeusLocalPowerState"
SCHEDULERS = (PLANS, PLANS_3D, ENVPIPE, GLOBAL_LIMIT, STAGE_LIMITS)
ENVPIPE_FOLDER = "envpipe"
LIMIT_TABLES = {GLOBAL_LIMIT: "zeus_global.csv", STAGE_LIMITS: "zeus_local.csv"}
LIMIT_COLUMNS = ("model_name", "partition_method", "dp", "tp", "pp", "microbatch_size", "num_microbatches")
# Run 0 warms up; run 1 is at the highest limit.
BASE_RUN = 1
MAX_LEVELS = 8


@dataclass
class Experiment:
    """All that was measured of a workload on one GPU model.

    Attributes:
        gpu: The GPU model, as its folder is named.
        workload: What was trained.
        plans: Runs under plans, slowest plan first.
        envpipe: The run under EnvPipe's plan, if there is one.
        limits: Points of a baseline by its scheduler, from the highest limit down.
        base_source: Where the baseline comes from: a folder of dumps or a table.
    """

    gpu: str
    workload: PipelineWorkload
    plans: list[MeasuredPoint] = field(default_factory=list)
    envpipe: MeasuredPoint | None = None
    limits: dict[str, list[MeasuredPoint]] = field(default_factory=dict)
    base_source: str = ""

    @property
    def base(self) -> MeasuredPoint | None:
        """The baseline: all GPUs at the highest power limit; None if it was not measured."""
        points = self.limits.get(GLOBAL_LIMIT)
        return points[0] if points else None


def read_experiments(data: str | Path, warm_up_iterations: int, warm_up_runs: int) -> list[Experiment]:
    """The experiments that have plans, in the order of GPU model, parallelism and name.

    Args:
        data: The folder.
        warm_up_iterations: First iterations of each run to leave out.
        warm_up_runs: First runs of an experiment to leave out, at maximum clocks (not of `PLANS_3D`).

    Raises:
        OperationError: The folder cannot be read.
        InputError: A file is invalid, or a run has too few iterations.
        UsageError: No iteration of a run remains.
    """
    root = Path(data)
    found: dict[tuple[str, PipelineWorkload], Experiment] = {}
    for folder, name in _experiment_folders(root):
        key = folder.parent.parent.name, name.workload
        experiment = found.setdefault(key, Experiment(*key))
        if name.scheduler == STAGE_LIMITS and _table(root, experiment.gpu, STAGE_LIMITS).is_file():
            # Its runs include those that searched for the limits, which the table leaves out.
            continue
        runs = [run_summary(run, warm_up_iterations) for run in read_runs(folder)]
        _check_ranks(folder, name, runs)
        is_envpipe = name.scheduler == ENVPIPE or folder.relative_to(root).parts[0] == ENVPIPE_FOLDER
        if name.scheduler in LIMIT_TABLES:
            experiment.limits[name.scheduler] = _points(runs, BASE_RUN)
            if name.scheduler == GLOBAL_LIMIT:
                experiment.base_source = str(folder.relative_to(root))
        elif is_envpipe:
            experiment.envpipe = _only(folder, _points(runs, warm_up_runs))
        else:
            experiment.plans = _slowest_first(_points(runs, 0 if name.scheduler == PLANS_3D else warm_up_runs))
    experiments = [experiment for experiment in found.values() if experiment.plans or experiment.envpipe]
    for experiment in experiments:
        _add_tables(root, experiment)
    return sorted(experiments, key=lambda each: (each.gpu, each.workload.parallelism, each.workload.label))


def _experiment_folders(root: Path) -> Iterator[tuple[Path, ExperimentName]]:
    """Folders with dumps whose names are those of experiments with a known scheduler."""

    def fail(error: OSError) -> None:
        raise OperationError(f"{error.filename}: cannot read: {error.strerror}") from error

    for place, folders, files in os.walk(root, onerror=fail):
        folders.sort()
        path = Path(place)
        depth = len(path.relative_to(root).parts)
        if depth >= MAX_LEVELS:
            folders.clear()
        if depth < 3 or not any(RUN_FILE.fullmatch(name) for name in files):
            continue
        name = parse_experiment_name(path.name)
        if name is None:
            raise InputError(str(path), "a folder of runs with another name", EXPECTED_NAME)
        if name.scheduler in SCHEDULERS:
            yield path, name


def _check_ranks(folder: Path, name: ExperimentName, runs: Sequence[RunSummary]) -> None:
    for run in runs:
        if run.ranks != name.workload.ranks:
            raise InputError(
                str(folder),
                f"{run.ranks} ranks in run {run.number}",
                f"{name.workload.ranks}, as {name.workload.parallelism} in its name says",
            )


def _points(runs: Sequence[RunSummary], first: int) -> list[MeasuredPoint]:
    return [
        MeasuredPoint(run.number, Realised(run.time_seconds, run.energy_joules), run.energy_error_joules)
        for run in runs
        if run.number >= first
    ]


def _only(folder: Path, points: Sequence[MeasuredPoint]) -> MeasuredPoint:
    if len(points) != 1:
        expected = "one run under EnvPipe's plan, after those that warm up (--warm-up-runs)"
        raise InputError(str(folder), f"{len(points)} runs", expected)
    return points[0]


def _slowest_first(points: list[MeasuredPoint]) -> list[MeasuredPoint]:
    """The order in which they were planned, which may run in either direction."""
    is_rising = len(points) > 1 and points[0].realised.time_seconds < points[-1].realised.time_seconds
    return points[::-1] if is_rising else points


def _add_tables(root: Path, experiment: Experiment) -> None:
    """Take baselines of which there are no dumps from the tables."""
    for scheduler in LIMIT_TABLES:
        table = _table(root, experiment.gpu, scheduler)
        if experiment.limits.get(scheduler) or not table.is_file():
            continue
        workload = experiment.workload
        rows = [row for row in read_table(table, (*LIMIT_COLUMNS, "time", "energy")) if _is_of(row, workload)]
        if rows:
            experiment.limits[scheduler] = [_table_point(row) for row in sorted(rows, key=_limit, reverse=True)]
            if scheduler == GLOBAL_LIMIT:
                experiment.base_source = str(table.relative_to(root))


def _table(root: Path, gpu: str, scheduler: str) -> Path:
    return root / "zeus" / "csv" / gpu / LIMIT_TABLES[scheduler]


def _is_of(row: Row, workload: PipelineWorkload) -> bool:
    found = (row.text("model_name"), row.text("partition_method"), *(row.integer(name) for name in LIMIT_COLUMNS[2:]))
    return found == (
        workload.model,
        workload.partition,
        workload.data_parallel,
        workload.tensor_parallel,
        workload.pipeline_parallel,
        workload.microbatch_size,
        workload.microbatches,
    )


def _limit(row: Row) -> float:
    """The highest limit of a rank."""
    return max((row.number(column) for column in row.cells if column.startswith("power_limit_")), default=0.0)


def _table_point(row: Row) -> MeasuredPoint:
    return MeasuredPoint(None, Realised(row.number("time", above=0), row.number("energy", above=0)))
