"""Runs that ranks recorded: the published sample, the files, and what they must not contain."""

import json
import statistics
from pathlib import Path

import numpy as np
import pytest

from support.pipelines.measured_pipelines import PERSEUS
from wattloop.errors import InputError, OperationError, UsageError
from wattloop_research.command_line.pipeline import WARM_UP_ITERATIONS
from wattloop_research.frequency.files.recorded_run_file import plans_of_runs, read_run, read_runs
from wattloop_research.frequency.recorded_runs import DEFAULT_WARM_UP_ITERATIONS, RankRecord, RecordedRun, run_summary

SAMPLE = PERSEUS / "prof_sample"
VALID = {"rank": 0, "iter_time": [2.0, 1.0], "iter_energy": [20.0, 10.0]}


def test_the_published_sample_has_the_time_of_its_slowest_ranks_and_the_energy_of_all() -> None:
    first, second = (run_summary(found) for found in read_runs(SAMPLE))
    for summary in (first, second):
        ranks = json.loads((SAMPLE / f"{summary.number}.prof.json").read_text())
        times = [max(rank["iter_time"][iteration] for rank in ranks) for iteration in range(1, 5)]
        energies = [sum(rank["iter_energy"][iteration] for rank in ranks) for iteration in range(1, 5)]
        assert summary.time_seconds == pytest.approx(statistics.mean(times), rel=1e-12)
        assert summary.energy_joules == pytest.approx(statistics.mean(energies), rel=1e-12)
        assert summary.time_error_seconds == pytest.approx(statistics.stdev(times) / 2, rel=1e-12)
    # The plan of run 2 takes an eighth less energy than maximum clocks, and an eighth more time.
    assert second.reduction_percent(first) == pytest.approx(12.467, abs=1e-3)
    assert second.slowdown_percent(first) == pytest.approx(12.028, abs=1e-3)


def test_an_instructions_mean_counts_each_repetition_of_the_iterations_that_count() -> None:
    rank = RankRecord(
        0,
        np.array([9.0, 1.0, 1.0]),
        np.array([9.0, 1.0, 1.0]),
        {"forward": (np.array([50.0]), np.array([1.0, 2.0]), np.array([6.0]))},
        {"forward": ()},
    )
    mean = run_summary(RecordedRun(0, (rank,))).instructions["forward"]
    assert mean.time_seconds == 3.0
    assert np.isnan(mean.energy_joules)


def test_the_commands_default_is_the_analysis() -> None:
    assert WARM_UP_ITERATIONS == DEFAULT_WARM_UP_ITERATIONS


@pytest.mark.parametrize("warm_up", [-1, 5, 6])
def test_a_warm_up_that_leaves_no_iteration_is_rejected(warm_up: int) -> None:
    with pytest.raises(UsageError, match=f"--warm-up {warm_up}"):
        run_summary(read_run(SAMPLE / "0.prof.json", 0), warm_up)


def test_runs_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 2, 0):
        (tmp_path / f"{number}.prof.json").write_text(json.dumps([VALID]))
    for other in ("2.sched.json", "02.prof.json", "notes.txt"):
        (tmp_path / other).write_text("")
    assert [run.number for run in read_runs(tmp_path)] == [0, 2, 10]


def test_a_folder_without_runs_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"found no run, expected files named N\.prof\.json"):
        read_runs(tmp_path)
    with pytest.raises(OperationError, match="cannot read"):
        read_runs(tmp_path / "missing")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "invalid JSON"),
        ("[", "invalid JSON"),
        ("{}", "found an object, expected a list with one object per rank"),
        ("[]", "found no rank"),
        ("[1]", "column entry 0: found 1, expected an object"),
        ([VALID | {"rank": -1}], "column entry 0, rank: found -1"),
        ([VALID | {"rank": True}], "column entry 0, rank: found True"),
        ([VALID, VALID], "found two records of rank 0"),
        ([VALID, {"rank": 1, "iter_time": [1.0], "iter_energy": [1.0]}], "column rank 1: found 1 iterations"),
        ([VALID | {"iter_time": []}], "found 0 times and 2 energies"),
        (
            [VALID | {"iter_time": [1.0, 0.0]}],
            "column rank 0, iter_time, value 1: found 0.0, expected a number above 0",
        ),
        ([VALID | {"iter_energy": [1.0, -1.0]}], "iter_energy, value 1: found -1.0"),
        ('[{"rank": 0, "iter_time": [NaN], "iter_energy": [1]}]', "iter_time, value 0: found nan"),
        ('[{"rank": 0, "iter_time": [1e999], "iter_energy": [1]}]', "iter_time, value 0: found inf"),
        (f'[{{"rank": 0, "iter_time": [1{"0" * 400}], "iter_energy": [1]}}]', "found a number of 1329 bits"),
        ([VALID | {"time_breakdown": []}], "column rank 0, time_breakdown: found a list"),
        ([VALID | {"time_breakdown": {"forward": [[1.0]]}}], "time_breakdown, forward: found 1 iterations, expected 2"),
        ([VALID | {"time_breakdown": {"forward": [[1.0], 1]}}], "forward, iteration 1: found 1"),
    ],
)
def test_an_invalid_file_is_rejected_with_the_place_and_what_is_valid(
    tmp_path: Path, content: object, message: str
) -> None:
    path = tmp_path / "0.prof.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(InputError) as rejected:
        read_run(path, 0)
    assert str(rejected.value).startswith(str(path))
    assert message in str(rejected.value)


def test_the_plan_of_a_run_is_that_of_its_number_or_of_the_series(tmp_path: Path) -> None:
    assert plans_of_runs(tmp_path, (0, 1, 17)) == {1: "freqs_pipeline_00000.py", 17: "freqs_pipeline_00016.py"}
    (tmp_path / "series.json").write_text('{"plans": ["freqs_pipeline_00002.py", "freqs_pipeline_00010.py"]}')
    assert plans_of_runs(tmp_path, (0, 1, 2, 3)) == {2: "freqs_pipeline_00002.py", 3: "freqs_pipeline_00010.py"}
    for text in ("[]", '{"plans": [1]}', '{"plans": ["../freqs_pipeline_00000.py"]}'):
        (tmp_path / "series.json").write_text(text)
        with pytest.raises(InputError, match="expected an object with the names of plans"):
            plans_of_runs(tmp_path, (1,))
