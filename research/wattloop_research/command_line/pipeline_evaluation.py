"""`wattloop pipeline evaluate`: the tables and pictures of the published evaluation, of a folder of experiments."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from wattloop.errors import InputError, OperationError, UsageError

if TYPE_CHECKING:
    from wattloop_research.frequency.evaluation.experiments import Experiment

EVALUATE_EXAMPLE = "  wattloop pipeline evaluate sosp24_data --output evaluation"
# Of the published evaluation (Chung et al. 2024): power of a GPU that waits in a collective operation, in watts.
PUBLISHED_BLOCKING_WATTS = {"A40": 70.38, "A100": 83.64, "a40": 70.38, "a100_sxm": 83.64}
PUBLISHED_WARM_UP_ITERATIONS = 2
PUBLISHED_WARM_UP_RUNS = 2


def configure_evaluate(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "data",
        metavar="DATA",
        help="folder with runs in …/GPU/parallelism/experiment/N.prof.json, an experiment named "
        "framework+model+partition+dp1+pp4+tp1+mbs4+nmb128+scheduler, as the artifact of Perseus has it",
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="write intrinsic.csv, stragglers.csv, emulation.csv, evaluation.md and a frontier-*.png of each pipeline "
        "(default: the tables as Markdown on stdout)",
    )
    parser.add_argument(
        "--warm-up",
        type=int,
        metavar="N",
        default=PUBLISHED_WARM_UP_ITERATIONS,
        help=f"number of first iterations of each run to exclude (default: {PUBLISHED_WARM_UP_ITERATIONS})",
    )
    parser.add_argument(
        "--warm-up-runs",
        type=int,
        metavar="N",
        default=PUBLISHED_WARM_UP_RUNS,
        help=f"number of first runs of plans to exclude (default: {PUBLISHED_WARM_UP_RUNS}, as published)",
    )
    parser.add_argument(
        "--blocking-power",
        type=_gpu_power,
        metavar="GPU=W",
        action="append",
        default=[],
        help="power of a GPU that waits, of a GPU model as its folder is named; may be repeated (known: "
        f"{', '.join(f'{gpu}={watts:g}' for gpu, watts in PUBLISHED_BLOCKING_WATTS.items())})",
    )


def _gpu_power(text: str) -> tuple[str, float]:
    gpu, _, watts = text.rpartition("=")
    try:
        power = float(watts)
    except ValueError:
        power = math.nan
    if not gpu or not 0 <= power < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: must be GPU=WATTS, for example A40=70.38")
    return gpu, power


def check_evaluate(arguments: argparse.Namespace) -> None:
    """Check the numbers.

    Raises:
        UsageError: One is negative.
    """
    for name in ("warm_up", "warm_up_runs"):
        if getattr(arguments, name) < 0:
            raise UsageError(f"--{name.replace('_', '-')} {getattr(arguments, name)}: must be at least 0")


def evaluate(arguments: argparse.Namespace) -> int:
    """Execute ``wattloop pipeline evaluate``."""
    from wattloop_research.frequency.evaluation.emulated_models import emulated_models
    from wattloop_research.frequency.evaluation.experiments import read_experiments
    from wattloop_research.frequency.evaluation.result_tables import markdown, result_tables, write_tables

    blocking_watts = PUBLISHED_BLOCKING_WATTS | dict(arguments.blocking_power)
    data = Path(arguments.data)
    experiments = read_experiments(data, arguments.warm_up, arguments.warm_up_runs)
    _check_experiments(experiments, blocking_watts)
    models = list(emulated_models(data, blocking_watts))
    tables = result_tables(experiments, models, blocking_watts)
    if not tables:
        raise InputError(
            str(data),
            f"{len(experiments)} experiments with plans, none of them with a baseline, and no emulation",
            "folders GPU/parallelism/experiment with N.prof.json, of plans and of ZeusGlobalPowerLimit, or "
            "emulation/iteration_time_energy and emulation/stage_profile",
        )
    if arguments.output is None:
        sys.stdout.write(markdown(tables))
        return 0
    from wattloop_research.frequency.plots.frontier_figure import write_evaluation_figures

    folder = Path(arguments.output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OperationError(f"--output {folder}: cannot write: {error.strerror}; name a writable folder") from error
    write_tables(folder, tables)
    pictures = write_evaluation_figures(folder, experiments, models)
    sys.stderr.write(
        f"{len(experiments)} experiments and {len(models)} emulated frontiers: {len(tables)} tables and {pictures} "
        f"pictures in {folder}\n"
    )
    return 0


def _check_experiments(experiments: list[Experiment], blocking_watts: dict[str, float]) -> None:
    """Say which experiments have no baseline, and what is not used."""
    for experiment in experiments:
        if experiment.gpu not in blocking_watts:
            raise UsageError(
                f"--blocking-power: that of {experiment.gpu} is not known; add --blocking-power {experiment.gpu}=WATTS"
            )
        if experiment.base is None:
            sys.stderr.write(
                f"{experiment.workload.label} on {experiment.gpu}: no saving, because there is no baseline; run it "
                "under ZeusGlobalPowerLimit, and store run 0, which warms up, and run 1 at the highest limit\n"
            )
        for note in experiment.notes:
            sys.stderr.write(f"{note}\n")
