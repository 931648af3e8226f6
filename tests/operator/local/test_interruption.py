"""A signal at any line of `wattloop run` ends it with 130, and the next run resumes."""

import random
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

from support.agents.agent_fixture import until
from support.local_runs.interrupted_runs import RECURRENCES, run_interrupted
from support.local_runs.local_runs import LocalJob
from support.test_sets.parameters import exhaustive_after

# A chain takes a sixth of this; more on a busy machine.
pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A run has 12,000 lines until its last training has ended, and some 20,000 more for its results.
LINES_OF_THE_LOOP, LINES_OF_A_RUN = 12_000, 34_000
# Called from compiled code, which turns any exception into its own error.
CALLED_BY_PYDANTIC = ("/wattloop_operator/api/field_types.py", "/wattloop_operator/api/meta.py")
CHAINS, POINTS_PER_CHAIN = 5, 20


def assert_consistent(local_job: LocalJob) -> None:
    """No file is incomplete, no temporary file is left, no training ran twice."""
    assert list((local_job.folder / "tmp").iterdir()) == []
    assert list(local_job.folder.rglob("*.part")) == []
    for plot in local_job.output.glob("*.png"):
        assert plot.read_bytes().endswith(b"IEND\xaeB`\x82")
    if (local_job.output / "recurrences.csv").exists():
        assert all(row["outcome"] for row in local_job.rows())
    if local_job.output.exists() and (local_job.output / "wattloop.db").exists():
        with closing(sqlite3.connect(local_job.output / "wattloop.db")) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    ran = trainings(local_job)
    assert len(ran) == len(set(ran))


def trainings(local_job: LocalJob) -> list[str]:
    ran = local_job.folder / "ran"
    return ran.read_text().split() if ran.exists() else []


def assert_next_run_resumes(local_job: LocalJob) -> None:
    """Without a signal the run succeeds: every recurrence reached its target once."""
    last = run_interrupted(local_job, None, with_plots=False)
    assert last.code == 0, last.stderr
    assert_consistent(local_job)
    outcomes = local_job.outcomes()
    reached = [recurrence for recurrence, _, outcome in outcomes if outcome == "reached"]
    assert reached == [str(each) for each in range(RECURRENCES)]
    assert {outcome for _, _, outcome in outcomes} <= {"reached", "disrupted"}
    assert len(trainings(local_job)) <= len(outcomes)


# A short chain has a point early in the run, one late, and each signal.
@pytest.mark.parametrize(
    ("chain", "points"), exhaustive_after([(2, 4), *((chain, POINTS_PER_CHAIN) for chain in range(CHAINS))])
)
def test_a_signal_at_any_line_ends_the_run_with_130_and_the_next_run_resumes(
    local_job: LocalJob, chain: int, points: int
) -> None:
    generator = random.Random(chain)
    for point in range(points):
        with_plots = point % 7 == 6
        line = generator.randrange(1, LINES_OF_A_RUN if with_plots else LINES_OF_THE_LOOP)
        ended = run_interrupted(local_job, line, generator.choice(SIGNALS), with_plots=with_plots)
        assert ended.code == (0 if ended.ended_before_signal else 130), f"line {line}: {ended.stderr}"
        assert "Traceback" not in ended.stderr, f"line {line}: {ended.stderr}"
        assert_consistent(local_job)
        if ended.ended_before_signal:
            assert_next_run_resumes(local_job)
            shutil.rmtree(local_job.output)
            (local_job.folder / "ran").unlink()
            continue
        assert ended.stderr.splitlines()[-1].startswith("wattloop run: interrupted")
    assert_next_run_resumes(local_job)


@pytest.mark.parametrize("line", exhaustive_after([5, 1, 20]))
def test_a_signal_inside_a_serialiser_causes_no_error_of_the_serialiser(local_job: LocalJob, line: int) -> None:
    ended = run_interrupted(local_job, line, with_plots=False, counted=CALLED_BY_PYDANTIC)
    assert not ended.ended_before_signal
    assert ended.code == 130, ended.stderr
    assert "Traceback" not in ended.stderr
    assert_consistent(local_job)
    assert_next_run_resumes(local_job)


@pytest.mark.parametrize("seed", exhaustive_after([1, 0, 2, 3, 4]))
def test_a_second_signal_ends_the_run_at_once_and_the_next_run_resumes(local_job: LocalJob, seed: int) -> None:
    generator = random.Random(seed)
    line, later = generator.randrange(500, LINES_OF_THE_LOOP), generator.choice([1, 20, 400, 3000])
    ended = run_interrupted(local_job, line, signal.SIGINT, repeat_after=later, with_plots=False)
    assert ended.code == (0 if ended.ended_before_signal else 130)
    assert "Traceback" not in ended.stderr
    until(no_folder_is_left(local_job), "the watchdog has removed the temporary folder")
    assert_consistent(local_job)
    assert_next_run_resumes(local_job)


def no_folder_is_left(local_job: LocalJob) -> Callable[[], bool]:
    return lambda: not list((local_job.folder / "tmp").iterdir())
