"""Which runs of a series a training repeats."""

import json
from pathlib import Path

import pytest

from wattloop.pipeline.plan_series import PlanSeries
from wattloop.pipeline.rank_plan_file import PlannedInstruction

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
    row = (PlannedInstruction("forward", 1200),)
    series = PlanSeries(1, "best", tmp_path, (Path("1.py"), Path("2.py")), (row, row), "", "digest")
    for run in dumped:
        (tmp_path / f"{run}.prof.json").write_text(json.dumps([ENTRY]))
    assert series.remaining(tmp_path, 1) == remaining
