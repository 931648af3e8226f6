"""Which runs of a series a training repeats."""

import json
from pathlib import Path

import pytest

from wattloop.pipeline.pipeline_place import pipeline_place
from wattloop_research.training.run_series import RunSeries, SeriesRun

ENTRY = {
    "rank": 0,
    "iter_time": [1.0],
    "iter_energy": [1.0],
    "time_breakdown": {},
    "energy_breakdown": {},
    "iterations": [1],
}


@pytest.mark.parametrize(
    ("dumped", "remaining"), [((0, 1, 2, 3), ()), ((0, 2, 3), (0, 1)), ((0, 1, 3), (0, 1, 2)), ((0, 3), (0, 1, 2))]
)
def test_the_run_that_plans_are_compared_with_is_repeated_like_a_plan(
    tmp_path: Path, dumped: tuple[int, ...], remaining: tuple[int, ...]
) -> None:
    for run in dumped:
        (tmp_path / f"{run}.prof.json").write_text(json.dumps([ENTRY]))
    place, runs = pipeline_place(stage=0, stages=1), [SeriesRun(f"run {number}") for number in range(4)]
    series = RunSeries(tmp_path, place, runs, warm_ups=2, kind="plans", settings={}, iterations=1)
    assert series.remaining == remaining
