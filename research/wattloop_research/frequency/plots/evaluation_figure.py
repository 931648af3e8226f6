"""Figures of an evaluation: frontiers that were measured or emulated, with their baselines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wattloop.files.atomic_write import open_atomic_bytes
from wattloop_research.frequency.evaluation.emulated_models import EmulatedModel
from wattloop_research.frequency.evaluation.experiments import GLOBAL_LIMIT, STAGE_LIMITS, Experiment
from wattloop_research.frequency.evaluation.measured_savings import MeasuredPoint
from wattloop_research.frequency.plots.drawing import write_png

LIMIT_LABELS = {GLOBAL_LIMIT: "one power limit", STAGE_LIMITS: "a power limit a stage"}


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
        axes.plot(*_places(points), ".-", lw=1, label=LIMIT_LABELS[scheduler])
    if experiment.plans:
        axes.plot(*_places(experiment.plans), "o-", ms=3, lw=1, label="plans")
    if experiment.envpipe is not None:
        axes.plot(*_places([experiment.envpipe]), "X", ms=8, label="EnvPipe")
    if experiment.base is not None:
        axes.axvline(experiment.base.realised.time_seconds, color="#555555", ls=":", lw=1, label="time of the baseline")
    axes.legend(fontsize=8)
    return figure


def emulated_figure(title: str, models: Sequence[EmulatedModel]) -> Figure:
    """Energy against time of an iteration: published plans and ours for one emulated pipeline."""
    figure, axes = _axes(title)
    for model in models:
        axes.plot(*_places(model.plans), ".", ms=3, label=f"plans: {model.origin}")
    axes.plot(*_places([models[-1].base]), "X", ms=8, color="#555555", label="maximum clocks")
    axes.legend(fontsize=8)
    return figure


def _axes(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=9)
    axes.set(xlabel="time of an iteration (s)", ylabel="energy of an iteration (J)")
    axes.grid(alpha=0.3)
    return figure, axes


def _places(points: Iterable[MeasuredPoint]) -> tuple[list[float], list[float]]:
    found = list(points)
    return [point.realised.time_seconds for point in found], [point.realised.energy_joules for point in found]
