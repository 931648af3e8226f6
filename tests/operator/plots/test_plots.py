"""Plots are drawn from any history, have the same bytes each time, and are written atomically."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib import rcParams
from PIL import Image

from support.test_sets.parameters import exhaustive_after
from wattloop.errors import OperationError
from wattloop_operator.plots import cost_plot, tradeoff, write_plots
from wattloop_operator.plots.figure_style import colours_of
from wattloop_operator.plots.tradeoff import pareto_front, tradeoff_points
from wattloop_planner.bandit.configuration import Configuration

Make = Callable[..., Any]


@pytest.fixture
def job_history(history: Make, record: Make, profile: Make) -> Any:
    """Three batch sizes: one that missed the target, an expensive one, and an efficient one."""
    records = [
        record(0, epochs=10.0),
        record(1, 0, batch_size=8, result="Stopped", energy_joules=4000.0),
        record(1, 1),
        *(record(number, batch_size=64, energy_joules=900.0, time_seconds=7.0) for number in range(2, 8)),
    ]
    profiles = (profile(32, (100, 120.0, 2.0), (300, 250.0, 1.0)), profile(64, (100, 60.0, 1.0), (300, 90.0, 0.7)))
    return history(*records, profiles=profiles)


def write_cost(path: Path, job_history: Any) -> None:
    cost_plot.write_cost_plot(path, job_history)


def write_tradeoff(path: Path, job_history: Any) -> None:
    tradeoff.write_tradeoff_plot(path, job_history.title, tradeoff_points(job_history), job_history.units)


@pytest.mark.parametrize("write", [write_cost, write_tradeoff])
def test_a_plot_is_large_enough_and_the_same_each_time(
    job_history: Any, tmp_path: Path, write: Callable[[Path, Any], None]
) -> None:
    for name in ("first.png", "second.png"):
        write(tmp_path / name, job_history)
    assert (tmp_path / "first.png").read_bytes() == (tmp_path / "second.png").read_bytes()
    with Image.open(tmp_path / "first.png") as image:
        assert image.width == 1440
        assert image.height > 800
        assert image.info.keys() <= {"dpi"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.png", "second.png"]


# First a text that matplotlib would take for mathematics, and one that the font cannot draw.
@pytest.mark.parametrize(
    "hostile", exhaustive_after([r"$\frac$", "\x1b[2J 精度", "$", "a\nb", "\u202e", "\x9b", "w" * 256], usual=2)
)
@pytest.mark.parametrize("write", [write_cost, write_tradeoff])
def test_any_value_and_metric_name_is_drawn_without_a_warning(
    history: Make, record: Make, tmp_path: Path, hostile: str, write: Callable[[Path, Any], None]
) -> None:
    write(tmp_path / "plot.png", history(record(parameters=(("tokenizer", hostile),), target_metric=hostile)))
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_each_attempt_is_a_bar_in_the_colour_of_its_batch_size(job_history: Any) -> None:
    figure = cost_plot._draw(job_history)
    above, below, metric = figure.axes
    bars = [container.patches[0] for container in above.containers]
    colours = colours_of([Configuration(8), Configuration(32), Configuration(64)])
    expected = [32, 8, 32, *[64] * 6]
    assert [bar.get_facecolor() for bar in bars] == [colours[Configuration(batch_size)] for batch_size in expected]
    assert [bool(bar.get_hatch()) for bar in bars] == [False, True, *[False] * 7]
    # The attempts of recurrence 1 are stacked.
    assert bars[2].get_y() == bars[1].get_height()
    assert [text.get_text() for text in above.get_legend().get_texts()] == [
        *("8", "32", "64", "target missed", "default configuration")
    ]
    # Recurrence 0 measured the limits of the default, 1 lost a trial, and six ran the learned batch size.
    shown = job_history.units.energy.interval_text(job_history.energy_savings.saved)
    assert [text.get_text() for text in below.texts] == [f"{shown}\nby 8 recurrences"]
    assert (above.get_ylabel(), below.get_ylabel()) == ("cost (% of that of the default)", "energy saved (kJ)")
    assert [line.get_ydata().tolist() for line in metric.lines[:1]] == [[0.97] * 8]


def test_the_front_is_drawn_and_its_ends_are_labelled(job_history: Any) -> None:
    points = tradeoff_points(job_history)
    figure = tradeoff._draw("team/digits", points, job_history.units)
    (axes,) = figure.axes
    front = pareto_front(points)
    drawn = [line.get_xdata() for line in axes.lines if line.get_linestyle() == "--"]
    assert [list(times) for times in drawn] == [[point.time_seconds / job_history.units.time.size for point in front]]
    assert [text.get_text() for text in axes.texts] == ["64 at 300 W", "64 at 100 W"]


def test_plots_of_an_empty_history_show_a_message(history: Make, tmp_path: Path) -> None:
    assert [text.get_text() for text in cost_plot._draw(history()).axes[0].texts] == [
        "No recurrence has ended with a known cost yet."
    ]
    assert [text.get_text() for text in tradeoff._draw("team/digits", (), history().units).axes[0].texts] == [
        "No batch size has reached the target yet."
    ]
    assert all(path.exists() for path in write_plots(tmp_path, history()))


@pytest.mark.parametrize("count", exhaustive_after([1, 120]))
def test_one_recurrence_and_very_many_can_be_drawn(history: Make, record: Make, tmp_path: Path, count: int) -> None:
    records = [record(number, batch_size=2 ** (number % 11)) for number in range(count)]
    assert all(path.exists() for path in write_plots(tmp_path, history(*records)))


def test_of_very_many_recurrences_every_nth_and_the_latest_are_drawn(history: Make, record: Make) -> None:
    figure = cost_plot._draw(history(*(record(number) for number in range(1_000))))
    bars = [container.patches[0].get_center()[0] for container in figure.axes[0].containers]
    assert bars == pytest.approx([*range(0, 1_000, 3)])
    assert figure.axes[0].get_title() == "team/digits: cost of 1 in 3 of 1,000 recurrences"


def test_drawing_does_not_change_the_settings_of_matplotlib(job_history: Any, tmp_path: Path) -> None:
    before = dict(rcParams)
    write_tradeoff(tmp_path / "tradeoff.png", job_history)
    assert dict(rcParams) == before


def test_a_plot_that_cannot_be_written_is_an_error(job_history: Any, tmp_path: Path) -> None:
    with pytest.raises(OperationError, match=r"cost\.png: cannot write"):
        write_plots(tmp_path / "missing", job_history)
