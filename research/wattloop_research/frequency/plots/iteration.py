"""A figure of one iteration under a plan: one row per stage, one box per operation."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from wattloop_planner.frequency.pipeline.graph import OperationGraph, critical_path
from wattloop_planner.frequency.pipeline.instruction_profiles import knob_label
from wattloop_planner.frequency.pipeline.planning_problem import Floats, Problem
from wattloop_planner.frequency.pipeline.plans import Plan, Realised, plan_energy_joules, plan_settings
from wattloop_planner.frequency.solver.planning import Planning
from wattloop_research.frequency.plots.drawing import Label, Labels, save_figure

COLOURS = "viridis_r"
CRITICAL = "#d62728"
# Width per operation, within these limits; some viewers cannot open wider figures.
INCHES_PER_OPERATION = 0.3
MIN_WIDTH_INCHES, MAX_WIDTH_INCHES = 10.0, 48.0
# Operations are labelled up to this number per stage.
MAX_LABELLED_OPERATIONS = 170
# Combinations of knobs that have a letter.
MAX_LABELLED_KNOBS = 6


@dataclass(frozen=True)
class Timeline:
    """One iteration under a plan; arrays of shape (operations,).

    Attributes:
        critical: The operations of one longest path, in order.
    """

    starts_seconds: Floats
    durations_seconds: Floats
    powers_watts: Floats
    critical: npt.NDArray[np.int64]
    time_seconds: float


def timeline(problem: Problem, plan: Plan) -> Timeline:
    """The timeline of an iteration under a plan."""
    places = problem.places_of(plan.choices)
    durations, energies = problem.option_times_seconds[places], problem.option_energies_joules[places]
    finishes = np.empty(problem.graph.operations)
    problem.pipeline.finish_times(durations, finishes)
    critical = critical_path(problem.graph, finishes)
    return Timeline(finishes - durations, durations, energies / durations, critical, float(finishes.max()))


def plans_to_draw(realised: Sequence[Realised], count: int | None) -> list[int]:
    """Select the slowest plan, the plan of minimum energy, the fastest, and others at even distances.

    Args:
        realised: Time and energy of each plan, slowest first.
        count: Maximum number of plans, at least 3; None: all.

    Returns:
        Numbers of the plans, rising.

    Example:
        >>> plans_to_draw([Realised(9 - number, abs(number - 2)) for number in range(9)], 5)
        [0, 2, 3, 5, 8]
    """
    last = len(realised) - 1
    if count is None or count > last:
        return list(range(last + 1))
    cheapest = min(range(last + 1), key=lambda number: realised[number].energy_joules)
    chosen = sorted({0, cheapest, last})
    while len(chosen) < count:
        # The middle of the widest gap; of equally wide gaps, the one of slower plans.
        width, before = max((after - before, -before) for before, after in pairwise(chosen))
        chosen = sorted([*chosen, -before + width // 2])
    return chosen


def draw_plans(
    folder: Path,
    problem: Problem,
    planning: Planning,
    numbers: Sequence[int],
    on_progress: Callable[[str, float], None],
) -> None:
    """Write ``pipeline_%05d`` for the given plan numbers, with common scales of time and power."""
    on_progress("figures", 0.0)
    lines = [timeline(problem, planning.plans[number]) for number in numbers]
    powers = Normalize(problem.blocking_power_watts, max(float(line.powers_watts.max()) for line in lines), clip=True)
    max_time = max(line.time_seconds for line in lines)
    for drawn, (number, line) in enumerate(zip(numbers, lines, strict=True), start=1):
        energy = plan_energy_joules(problem, planning.plans[number])
        title = f"plan {number}: {line.time_seconds:.4g} s, {energy:,.0f} J"
        knobs = operation_knobs(problem, planning.plans[number])
        figure = pipeline_figure(problem, line, powers, max_time, title, knobs=knobs)
        save_figure(figure, folder, f"pipeline_{number:05d}")
        on_progress(f"figure {drawn} of {len(lines)}", drawn / len(lines))


def operation_knobs(problem: Problem, plan: Plan) -> list[str]:
    """The knobs of each operation, as `knob_label` writes them; empty texts without knobs."""
    names, labels = problem.profile.knobs, [""] * problem.graph.operations
    for order, row in zip(problem.graph.order, plan_settings(problem, plan), strict=True):
        for operation, setting in zip(order.tolist(), row, strict=True):
            labels[operation] = knob_label(names, setting.knobs)
    return labels


def pipeline_figure(
    problem: Problem,
    line: Timeline,
    powers: Normalize,
    max_seconds: float,
    title: str,
    *,
    knobs: Sequence[str],
) -> Figure:
    """A figure of one iteration.

    Args:
        problem: The pipeline.
        line: The timeline of the iteration.
        powers: Scale of the colours, in watts.
        max_seconds: End of the time axis.
        title: Title of the figure.
        knobs: The knobs of each operation. If they differ, each has a letter, which follows the label of the
            operation; otherwise the title has them.
    """
    graph = problem.graph
    max_per_stage = max(len(order) for order in graph.order)
    width = min(max(max_per_stage * INCHES_PER_OPERATION, MIN_WIDTH_INCHES), MAX_WIDTH_INCHES)
    figure = Figure(figsize=(width, 1.6 + 0.42 * graph.stages), layout="constrained")
    axes = figure.subplots()
    _draw_waiting(axes, graph.stages, line.time_seconds)
    boxes, letters = _boxes(graph, line), knob_letters(knobs)
    if len(set(knobs)) == 1 and knobs[0]:
        title += f", {knobs[0]}"
    drawn = PolyCollection(
        list(boxes), array=line.powers_watts, cmap=COLOURS, norm=powers, edgecolors="white", linewidths=0.4
    )
    axes.add_collection(drawn)
    axes.add_collection(
        PolyCollection(list(boxes[line.critical]), facecolors="none", edgecolors=CRITICAL, linewidths=1.3)
    )
    _draw_critical_path(axes, graph, line)
    if max_per_stage <= MAX_LABELLED_OPERATIONS:
        _label_operations(
            axes, graph, line, drawn, 72 * width / max_seconds, letters=[letters.get(each, "") for each in knobs]
        )
    axes.set(xlim=(0, max_seconds), ylim=(graph.stages - 0.5, -0.5), xlabel="time (s)", ylabel="stage", title=title)
    axes.set_yticks(range(graph.stages))
    figure.colorbar(ScalarMappable(powers, COLOURS), ax=axes, label="power (W)", pad=0.01, aspect=10)
    keys = [
        Patch(facecolor="#eeeeee", edgecolor="#999999", hatch="////", label="waiting"),
        Patch(facecolor="none", edgecolor=CRITICAL, label="critical path"),
        *(Patch(facecolor="none", edgecolor="none", label=f"{letter}: {label}") for label, letter in letters.items()),
    ]
    figure.legend(handles=keys, loc="outside lower right", ncols=len(keys), frameon=False, fontsize=8)
    return figure


def knob_letters(knobs: Sequence[str]) -> dict[str, str]:
    """A letter for each of the most frequent knobs; none where all operations have the same.

    Example:
        >>> knob_letters(["sm=16", "sm=16", "sm=8"])
        {'sm=16': 'a', 'sm=8': 'b'}
        >>> knob_letters(["", ""])
        {}
    """
    counts = Counter(knobs)
    if len(counts) < 2:
        return {}
    return {label: chr(ord("a") + place) for place, (label, _) in enumerate(counts.most_common(MAX_LABELLED_KNOBS))}


def _draw_waiting(axes: Axes, stages: int, time_seconds: float) -> None:
    """Hatch the complete iteration; parts that no operation covers are waiting."""
    axes.barh(
        range(stages),
        time_seconds,
        height=0.8,
        color="#eeeeee",
        edgecolor="#999999",
        hatch="////",
        linewidth=0,
        zorder=0,
    )


def _boxes(graph: OperationGraph, line: Timeline) -> npt.NDArray[np.float64]:
    left, right = line.starts_seconds, line.starts_seconds + line.durations_seconds
    top, bottom = graph.stage_of - 0.4, graph.stage_of + 0.4
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    return np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)


def _draw_critical_path(axes: Axes, graph: OperationGraph, line: Timeline) -> None:
    """Draw lines between boxes where the path changes the stage."""
    before, after = line.critical[:-1], line.critical[1:]
    changes = graph.stage_of[before] != graph.stage_of[after]
    ends = line.starts_seconds[before] + line.durations_seconds[before]
    starts = np.stack([ends, graph.stage_of[before]], axis=1)[changes]
    targets = np.stack([line.starts_seconds[after], graph.stage_of[after]], axis=1)[changes]
    axes.add_collection(LineCollection(list(np.stack([starts, targets], axis=1)), colors=CRITICAL, linewidths=1.3))


def _label_operations(
    axes: Axes,
    graph: OperationGraph,
    line: Timeline,
    boxes: PolyCollection,
    points_per_second: float,
    *,
    letters: Sequence[str],
) -> None:
    """Label every box that is wide enough with the instruction's initial, the microbatch, and the knobs' letter."""
    colours = boxes.to_rgba(line.powers_watts)
    # Dark text on bright boxes, by the luminance of sRGB.
    bright = colours[:, :3] @ np.array([0.299, 0.587, 0.114]) > 0.55
    middles = line.starts_seconds + line.durations_seconds / 2
    labels = []
    for operation in range(graph.operations):
        name = graph.instructions[graph.instruction_of[operation]]
        text = f"{name[0].upper()}{graph.microbatch_of[operation]}{letters[operation]}"
        size = min(7.0, points_per_second * float(line.durations_seconds[operation]) / (0.75 * len(text)))
        if size >= 3.0:
            place = (float(middles[operation]), float(graph.stage_of[operation]))
            # Round sizes down to a tenth of a point, so that fewer fonts are loaded.
            labels.append(Label(place, text, math.floor(size * 10) / 10, "black" if bright[operation] else "white"))
    axes.add_artist(Labels(labels))
