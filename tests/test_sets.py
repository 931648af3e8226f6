"""The two sets of tests: what a commit draws of the exhaustive one, and that each is run by its command."""

import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from support.test_sets.recorded_times import TestTime, read_times, slowest_lines, write_times
from support.test_sets.share import share_of

ROOT = Path(__file__).parents[1]
SECONDS = {f"tests/test_{number}.py::test_it": float(number % 60) for number in range(200)}
A_FILE_OF_BOTH_SETS = """
import pytest
from hypothesis import given, strategies as st

def test_usual(): ...

@pytest.mark.exhaustive
def test_long(): ...

@given(st.integers())
def test_property(number): ...
"""


@given(st.text())
def test_a_commit_draws_the_same_share_each_time_within_the_bound(commit: str) -> None:
    drawn = share_of(SECONDS, commit, bound_seconds=120.0)
    assert drawn == share_of(dict(reversed(SECONDS.items())), commit, bound_seconds=120.0)
    assert sum(SECONDS[test] for test in drawn) <= 120.0 or len(drawn) == 1


def test_commits_draw_each_test_about_once_in_ten_times() -> None:
    commits = [f"commit {number}" for number in range(1000)]
    drawn = [test for commit in commits for test in share_of(SECONDS, commit, bound_seconds=1e9)]
    assert all(60 <= drawn.count(test) <= 140 for test in SECONDS)


def test_the_times_of_a_run_are_written_and_read_unchanged(tmp_path: Path) -> None:
    times = [TestTime("test-unit", "", 90.0, 60.0), TestTime("test-unit", 'tests/a.py::test_a["b,c"]', 0.125, 0.1)]
    write_times(tmp_path / "times.csv", times)
    assert read_times(tmp_path / "times.csv") == times
    assert [line.split()[-1] for line in slowest_lines(times)] == ['tests/a.py::test_a["b,c"]']


def test_a_set_has_its_tests_and_both_have_the_properties(tmp_path: Path) -> None:
    (tmp_path / "test_both.py").write_text(A_FILE_OF_BOTH_SETS, encoding="utf-8")
    arguments = ["--collect-only", "-q", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]

    def collected(*options: str) -> set[str]:
        command = [sys.executable, "-m", "pytest", *arguments, *options, str(ROOT / "tests/conftest.py"), str(tmp_path)]
        printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
        return {line.rpartition("::")[2] for line in printed.splitlines() if "::" in line}

    assert collected() == {"test_usual", "test_long", "test_property"}
    assert collected("--set=usual") == {"test_usual", "test_property"}
    assert collected("--set=exhaustive") == {"test_long", "test_property"}
