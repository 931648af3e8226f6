"""Figures of frontiers: planned, measured and emulated ones, with their baselines."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wattloop.files.atomic_write import open_atomic_bytes
from wattloop_planner.frequency.pipeline.plans import Realised
from wattloop_planner.frequency.solver.planning import Planning
from wattloop_research.frequency.baselines import Baseline
from wattloop_research.frequency.evaluation.emulated_models import EmulatedModel
from wattloop_research.frequency.evaluation.experiments import GLOBAL_LIMIT, STAGE_LIMITS, Experiment
from wattloop_research.frequency.files.plan_file import knobs_of_plan
from wattloop_research.frequency.files.result import read_frontier, read_planned_result
from wattloop_research.frequency.plots.drawing import save_figure, write_png, write_svg

LIMIT_LABELS = {GLOBAL_LIMIT: "one power limit", STAGE_LIMITS: "a power limit a stage"}
MARKERS = {"max-frequency": "X", "zeus-global": "^", "zeus-per-stage": "v", "envpipe": "D"}
# Beside a run, of the combinations that most of its operations have.
MAX_LABELLED_KNOBS = 3


def write_evaluation_figures(folder: Path, experiments: Sequence[Experiment], models: Sequence[EmulatedModel]) -> int:
    """Write a PNG for each experiment and each emulated model; returns how many.

    Raises:
        OperationError: A file cannot be written.
    """
    count = 0
    for name, figure in _figures(experiments, models):
        count += 1
        with open_atomic_bytes(folder / f"frontier-{name}.png") as stream:
            write_png(figure, stream)
    return count


def _figures(experiments: Sequence[Experiment], models: Sequence[EmulatedModel]) -> Iterator[tuple[str, Figure]]:
    for experiment in experiments:
        yield f"{experiment.gpu}-{experiment.workload.label}", experiment_figure(experiment)
    groups: dict[tuple[str, str, int], list[EmulatedModel]] = {}
    for model in models:
        groups.setdefault((model.model, model.device, model.microbatches), []).append(model)
    for (name, device, microbatches), group in groups.items():
        yield (
            f"{device}-{name}-mb{microbatches}",
            emulated_figure(f"{name} on {device}, {microbatches} microbatches", group),
        )


def experiment_figure(experiment: Experiment) -> Figure:
    """Energy against time of an iteration: plans, EnvPipe and the power-limit baselines of an experiment."""
    figure, axes = _axes(f"{experiment.workload.label} on {experiment.gpu}")
    for scheduler, points in experiment.limits.items():
        axes.plot(*_coordinates(each.realised for each in points), ".-", lw=1, label=LIMIT_LABELS[scheduler])
    if experiment.plans:
        axes.plot(*_coordinates(each.realised for each in experiment.plans), "o-", ms=3, lw=1, label="plans")
    if experiment.envpipe is not None:
        axes.plot(*_coordinates([experiment.envpipe.realised]), "X", ms=8, label="EnvPipe")
    if experiment.base is not None:
        axes.axvline(experiment.base.realised.time_seconds, color="#555555", ls=":", lw=1, label="time of the baseline")
    axes.legend(fontsize=8)
    return figure


def emulated_figure(title: str, models: Sequence[EmulatedModel]) -> Figure:
    """Energy against time of an iteration: published plans and ours for one emulated pipeline."""
    figure, axes = _axes(title)
    for model in models:
        axes.plot(*_coordinates(each.realised for each in model.plans), ".", ms=3, label=f"plans: {model.origin}")
    axes.plot(*_coordinates([models[-1].base.realised]), "X", ms=8, color="#555555", label="maximum clocks")
    axes.legend(fontsize=8)
    return figure


def _axes(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=9)
    axes.set(xlabel="time of an iteration (s)", ylabel="energy of an iteration (J)")
    axes.grid(alpha=0.3)
    return figure, axes


def draw_frontier(folder: Path, planning: Planning, realised: Sequence[Realised], points: Sequence[Baseline]) -> None:
    """Write ``frontier.png`` and ``frontier.svg``."""
    save_figure(frontier_figure(planning, realised, points), folder, "frontier")


def frontier_figure(planning: Planning, realised: Sequence[Realised], points: Sequence[Baseline]) -> Figure:
    """A figure of energy against time."""
    frontier = planning.frontier
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(frontier.times_seconds, frontier.energies_joules, color="#555555", lw=1, label="lower bound (relaxation)")
    axes.plot(
        *_coordinates(realised),
        "o",
        ms=4,
        label=f"{len(realised)} plans ({100 * float(planning.gaps.mean()):.2f} % above the bound in the mean)",
    )
    for method, marker in MARKERS.items():
        of_method = [point.realised for point in points if point.method == method]
        if of_method:
            axes.plot(*_coordinates(of_method), marker, ms=5, alpha=0.8, label=f"baseline {method}")
    cheapest = int(np.argmin(frontier.energies_joules))
    minimum = "T*: minimum energy, where no other pipeline is waited for"
    axes.axvline(frontier.times_seconds[cheapest], color="#999999", lw=0.8, ls="--", zorder=0, label=minimum)
    axes.annotate("T*", (frontier.times_seconds[cheapest], axes.get_ylim()[1]), ha="center", va="bottom", fontsize=9)
    axes.set(xlabel="time of an iteration (s)", ylabel="energy of an iteration (J)")
    axes.set_title("Frontier of a pipeline's iteration: the least energy for each time", loc="left", pad=18)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def write_comparison(
    path: str | Path,
    plans: str | Path | None,
    runs: Mapping[int, Realised],
    baselines: Mapping[str, Sequence[Realised]],
    *,
    plan_names: Mapping[int, str],
) -> None:
    """Write the figure as PNG, or as SVG if the path ends with ``.svg``.

    Args:
        path: The picture.
        plans: Folder written by `wattloop plan`; None: only what was measured is drawn.
        runs: Time and energy of an iteration of one pipeline, by number of the run.
        baselines: The same of the runs of baselines, by name.
        plan_names: Name of the plan file of a run, by its number; none of a run without a plan.

    Raises:
        InputError: The folder has no valid result.
        OperationError: The picture cannot be written.
    """
    figure = comparison_figure(plans, runs, baselines, plan_names)
    with open_atomic_bytes(path) as stream:
        if str(path).endswith(".svg"):
            write_svg(figure, stream, "comparison")
        else:
            write_png(figure, stream)


def comparison_figure(
    plans: str | Path | None,
    runs: Mapping[int, Realised],
    baselines: Mapping[str, Sequence[Realised]],
    plan_names: Mapping[int, str],
) -> Figure:
    """A figure of energy against time. The point of each run has its number and the knobs of its plan."""
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    if plans is not None:
        axes.plot(*_coordinates(read_frontier(plans)), color="#555555", lw=1, label="lower bound (relaxation)")
        axes.plot(*_coordinates(read_planned_result(plans).realised), "o", ms=4, label="plans")
    for name, points in baselines.items():
        axes.plot(*_coordinates(points), ".--", lw=1, label=name)
    axes.plot(*_coordinates(runs.values()), "X", ms=8, color="#c0392b", label="runs")
    for number, point in runs.items():
        place = point.time_seconds, point.energy_joules
        axes.annotate(
            _label(plans, number, plan_names.get(number)), place, (6, 6), textcoords="offset points", fontsize=8
        )
    axes.set(xlabel="time of an iteration (s)", ylabel="energy of an iteration of one pipeline (J)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def _label(plans: str | Path | None, run: int, plan_name: str | None) -> str:
    """The number of a run, and the knobs of its plan with the number of operations that have them."""
    path = None if plans is None or plan_name is None else Path(plans) / plan_name
    knobs = knobs_of_plan(path) if path is not None and path.is_file() else Counter[str]()
    lines = [f"{label} ({count})" for label, count in knobs.most_common(MAX_LABELLED_KNOBS)]
    more = ["…"] if len(knobs) > MAX_LABELLED_KNOBS else []
    return "\n".join((str(run), *lines, *more))


def _coordinates(points: Iterable[Realised]) -> tuple[list[float], list[float]]:
    found = list(points)
    return [point.time_seconds for point in found], [point.energy_joules for point in found]
