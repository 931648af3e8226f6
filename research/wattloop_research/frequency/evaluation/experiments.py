"""Finds the experiments of a folder: dumps of runs in ``…/GPU/group/experiment``, and tables of their baselines.

The layout is that of the published artifact (docs/internals/pipeline-experiments.md); folders of one's own need only
the last three levels.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wattloop.errors import InputError, OperationError
from wattloop.files.csv_table import Row, read_table
from wattloop_planner.frequency.pipeline.plans import Realised
from wattloop_research.frequency.evaluation.measured_savings import MeasuredPoint
from wattloop_research.frequency.files.recorded_run_file import (
    RUN_FILE,
    SERVER_FILE,
    limit_runs,
    read_runs,
    recorded_scheduler,
)
from wattloop_research.frequency.recorded_runs import RunSummary, run_summary
from wattloop_research.training.experiment_name import (
    EXPECTED_NAME,
    ExperimentName,
    PipelineWorkload,
    parse_experiment_name,
)

# Kinds of experiments, by the schedulers of the artifact. Those for data and tensor parallelism have a suffix.
PLANS, ENVPIPE = "PointSolution", "EnvPipe"
GLOBAL_LIMIT, STAGE_LIMITS = "ZeusGlobalPowerLimit", "ZeusLocalPowerState"
KINDS = (PLANS, ENVPIPE, GLOBAL_LIMIT, STAGE_LIMITS)
SUFFIX_3D = "3D"
ENVPIPE_FOLDER = "envpipe"
LIMIT_TABLES = {GLOBAL_LIMIT: "zeus_global.csv", STAGE_LIMITS: "zeus_local.csv"}
LIMIT_COLUMNS = ("model_name", "partition_method", "dp", "tp", "pp", "microbatch_size", "num_microbatches")
MAX_LEVELS = 8


@dataclass
class Experiment:
    """All that was measured of a workload on one GPU model.

    Attributes:
        gpu: The GPU model, as its folder is named.
        plans: Runs under plans, slowest plan first.
        envpipe: The run under EnvPipe's plan, if there is one.
        limits: Points of a baseline by its scheduler, from the highest limit down.
        base_source: Where the baseline comes from: a folder of dumps or a table.
        folders: The folder of dumps of each kind.
    """

    gpu: str
    workload: PipelineWorkload
    plans: list[MeasuredPoint] = field(default_factory=list)
    envpipe: MeasuredPoint | None = None
    limits: dict[str, list[MeasuredPoint]] = field(default_factory=dict)
    base_source: str = ""
    folders: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def base(self) -> MeasuredPoint | None:
        """The baseline: all GPUs at the highest power limit; None if it was not measured."""
        points = self.limits.get(GLOBAL_LIMIT)
        return points[0] if points else None


@dataclass(frozen=True)
class _Folder:
    """A folder of dumps.

    Attributes:
        warm_up_runs: Number of first runs that warm up, as ``perseus.json`` states it; None if it does not.
    """

    path: Path
    workload: PipelineWorkload
    kind: str
    warm_up_runs: int | None


def read_experiments(data: str | Path, warm_up_iterations: int, warm_up_runs: int) -> list[Experiment]:
    """The experiments that have plans, in the order of GPU model, parallelism and name.

    Args:
        data: The folder.
        warm_up_iterations: First iterations of each run to leave out.
        warm_up_runs: First runs of plans to leave out. The published evaluation leaves out two everywhere, also of
            its job with data and tensor parallelism, where they are the two fastest plans.

    Raises:
        OperationError: The folder cannot be read.
        InputError: A file is invalid, or a run has too few iterations.
        UsageError: No iteration of a run remains.
    """
    root = Path(data)
    found: dict[tuple[str, PipelineWorkload], Experiment] = {}
    for folder in _experiment_folders(root):
        key = folder.path.parent.parent.name, folder.workload
        experiment = found.setdefault(key, Experiment(*key))
        if folder.kind == STAGE_LIMITS and _table(root, experiment.gpu, STAGE_LIMITS).exists():
            # Its runs include those that searched for the limits, which the table leaves out.
            continue
        name = str(folder.path.relative_to(root))
        if folder.kind in experiment.folders:
            experiment.notes.append(
                f"{experiment.folders[folder.kind]}: not used, because {name} has runs of the same kind"
            )
        experiment.folders[folder.kind] = name
        runs = [run_summary(run, warm_up_iterations) for run in read_runs(folder.path)]
        _check_ranks(folder, runs)
        points = {
            run.number: MeasuredPoint(
                run.number, Realised(run.time_seconds, run.energy_joules), run.energy_error_joules
            )
            for run in runs
        }
        if folder.kind in LIMIT_TABLES:
            experiment.limits[folder.kind] = [points[number] for number in limit_runs(folder.path, points)]
            if folder.kind == GLOBAL_LIMIT:
                experiment.base_source = name
            continue
        if folder.warm_up_runs not in {None, warm_up_runs}:
            experiment.notes.append(
                f"{name}: {warm_up_runs} first runs left out, but {SERVER_FILE} says that {folder.warm_up_runs} warm "
                f"up; --warm-up-runs {folder.warm_up_runs} follows it"
            )
        plans = [point for number, point in points.items() if number >= warm_up_runs]
        if folder.kind == ENVPIPE:
            if len(plans) != 1:
                expected = "one run under EnvPipe's plan, after those that warm up (--warm-up-runs)"
                raise InputError(str(folder.path), f"{len(plans)} runs", expected)
            experiment.envpipe = plans[0]
        else:
            # They were planned in this order, or in the other one.
            is_rising = len(plans) > 1 and plans[0].realised.time_seconds < plans[-1].realised.time_seconds
            experiment.plans = plans[::-1] if is_rising else plans
    experiments = [experiment for experiment in found.values() if experiment.plans or experiment.envpipe]
    for experiment in experiments:
        _add_tables(root, experiment)
    return sorted(experiments, key=lambda each: (each.gpu, each.workload.parallelism, each.workload.label))


def _experiment_folders(root: Path) -> Iterator[_Folder]:
    """Folders with dumps whose names are those of experiments, and whose scheduler is known."""

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
        folder = _folder(root, path, name)
        if folder.kind in KINDS:
            yield folder


def _folder(root: Path, path: Path, name: ExperimentName) -> _Folder:
    recorded = recorded_scheduler(path)
    scheduler = name.scheduler if recorded is None else recorded.name
    kind = scheduler.removesuffix(SUFFIX_3D)
    warm_up_runs = None if recorded is None else recorded.warm_up_runs
    if kind == PLANS and path.relative_to(root).parts[0] == ENVPIPE_FOLDER:
        kind = ENVPIPE
    return _Folder(path, name.workload, kind, warm_up_runs)


def _check_ranks(folder: _Folder, runs: Sequence[RunSummary]) -> None:
    expected = folder.workload.ranks
    for run in runs:
        if run.ranks != expected:
            raise InputError(
                str(folder.path),
                f"{run.ranks} ranks in run {run.number}",
                f"{expected}, as {folder.workload.parallelism} in its name says",
            )


def _add_tables(root: Path, experiment: Experiment) -> None:
    """Take baselines of which there are no dumps from the tables."""
    for scheduler in LIMIT_TABLES:
        table = _table(root, experiment.gpu, scheduler)
        if experiment.limits.get(scheduler) or not table.exists():
            continue
        workload = experiment.workload
        rows = [row for row in read_table(table, (*LIMIT_COLUMNS, "time", "energy")) if _is_of(row, workload)]
        if rows:
            experiment.limits[scheduler] = [
                MeasuredPoint(None, Realised(row.number("time", above=0), row.number("energy", above=0)))
                for row in sorted(rows, key=_limit, reverse=True)
            ]
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
    return max((row.number(column) for column in row.cells if column.startswith("power_limit_")), default=0.0)
