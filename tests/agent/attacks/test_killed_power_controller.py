"""SIGKILL before and after each system call of a change; the next power controller restores."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.test_sets.parameters import exhaustive_after

pytestmark = pytest.mark.processes

PROGRAM = Path(__file__).parents[2] / "support" / "agents" / "killed_at_points.py"
FOUND = [[400.0, None], [400.0, None]]


@pytest.mark.parametrize("change", exhaustive_after(["hold", "release", "another limit", "clocks"], usual=2))
def test_wherever_the_power_controller_is_killed_the_next_one_restores_every_gpu(change: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), change], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    points = json.loads(done.stdout)
    assert [point["killed"] for point in points[:-1]] == [True] * (len(points) - 1)
    assert len(points) > 16, "every system call was a point"
    assert [number for number, point in enumerate(points) if point["restored"] != FOUND] == []
    if change in {"hold", "clocks"}:
        touched = [point["left"] != FOUND for point in points]
        assert any(touched), "some points are after the change"
        assert not touched[0]
