from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.policy import Arm
from wattloop_research.policy_figures import (
    PosteriorPanel,
    mean_curve,
    spread_indices,
    write_posterior_plot,
    write_regret_plot,
)


def test_a_posterior_figure_is_drawn_with_and_without_estimates(tmp_path: Path) -> None:
    arms = (Arm(8, 1, False, 10.0, 8.0, 12.0), Arm(16, 0, False, 12.0, 6.0, 20.0), Arm(32, 0, True))
    panels = [
        PosteriorPanel(0, (), Configuration(8), ()),
        PosteriorPanel(1, arms, Configuration(16), ((8, 10.0, True), (16, 5.0, False), (8, 0.0, True))),
    ]
    write_posterior_plot(tmp_path / "posterior.png", "a job", panels)
    assert imread(tmp_path / "posterior.png").shape[1] == 11 * 144


def test_a_regret_figure_is_drawn(tmp_path: Path) -> None:
    write_regret_plot(tmp_path / "regret.png", "a job", {"one": [1.0, 2.0], "other": [-0.5, 0.5]})
    assert imread(tmp_path / "regret.png").shape[:2] == (648, 1152)


def test_the_mean_curve_has_the_length_of_the_shortest() -> None:
    assert mean_curve([[1.0, 2.0, 3.0], [3.0, 6.0]]) == [2.0, 4.0]


@given(st.integers(1, 300), st.integers(2, 16))
def test_panels_are_distinct_ordered_and_include_both_ends(count: int, max_count: int) -> None:
    indices = spread_indices(count, max_count)
    assert indices == sorted(set(indices))
    assert len(indices) == min(count, max_count)
    assert (indices[0], indices[-1]) == (0, count - 1)


def test_a_figure_that_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="existing, writable folder"):
        write_regret_plot(tmp_path / "absent" / "regret.png", "a job", {"one": [1.0]})
