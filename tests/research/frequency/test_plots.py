"""Figures of plans: the selection of plans, and reproducible files."""

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from support.pipelines.knob_pipelines import knob_problem
from support.pipelines.measured_pipelines import measured_problem
from support.pipelines.random_pipelines import randomly
from wattloop_planner.frequency.pipeline.plans import Realised, plan_settings
from wattloop_planner.frequency.solver.planning import plan_pipeline
from wattloop_research.command_line.plan import MIN_PLOTS
from wattloop_research.frequency.plots.iteration import draw_plans, plans_to_draw


@randomly
@given(st.lists(st.floats(1, 9), min_size=1, max_size=60), st.integers(MIN_PLOTS, 70))
def test_drawn_plans_include_the_ends_and_the_minimum_energy_at_even_distances(
    energies: list[float], count: int
) -> None:
    realised = [Realised(100.0 - number, energy) for number, energy in enumerate(energies)]
    chosen = plans_to_draw(realised, count)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(count, len(energies))
    assert {0, energies.index(min(energies)), len(energies) - 1} <= set(chosen)
    if MIN_PLOTS < count < len(energies):
        # The widest gaps are filled first.
        widths = [after - before for before, after in pairwise(chosen)]
        assert max(widths) <= 2 * -(-(len(energies) - 1) // (count - MIN_PLOTS + 1))
    assert plans_to_draw(realised, None) == list(range(len(energies)))


def test_figures_are_reproducible_and_each_reports_progress(tmp_path: Path) -> None:
    problem = measured_problem("gpt3", 3, stages=2)
    planning = plan_pipeline(problem, 5)
    folders = [tmp_path / name for name in ("first", "second")]
    reported: list[tuple[str, float]] = []
    for folder in folders:
        folder.mkdir()
        draw_plans(folder, problem, planning, [0, 3], lambda what, share: reported.append((what, share)))
    assert reported == 2 * [("figures", 0.0), ("figure 1 of 2", 0.5), ("figure 2 of 2", 1.0)]
    names = sorted(path.name for path in folders[0].iterdir())
    assert names == [f"pipeline_0000{number}.{kind}" for number in (0, 3) for kind in ("png", "svg")]
    assert all((folders[0] / name).read_bytes() == (folders[1] / name).read_bytes() for name in names)


def test_a_figure_of_a_plan_with_knobs_says_which_operation_has_which(tmp_path: Path) -> None:
    problem = knob_problem(tmp_path)
    planning = plan_pipeline(problem, 5)
    draw_plans(tmp_path, problem, planning, range(len(planning.plans)), lambda *_: None)
    for number, plan in enumerate(planning.plans):
        drawn = (tmp_path / f"pipeline_{number:05d}.svg").read_text()
        settings = sorted({setting.knobs for row in plan_settings(problem, plan) for setting in row})
        for overlap, sm in settings:
            assert f"overlap={overlap} sm={sm}" in drawn
        assert ("F0a" in drawn or "F0b" in drawn) == (len(settings) > 1)
