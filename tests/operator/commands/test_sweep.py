"""`wattloop sweep`: from the manifest to the table and the plot, also across a kill."""

import csv
import itertools
from pathlib import Path

import pytest

from support.local_runs.local_runs import TRAINING, LocalJob, descendants_of, kill, wait_for_end
from wattloop.commands.main import main
from wattloop_operator.store.store import open_store

pytestmark = pytest.mark.processes

GRID = ("--batch-sizes", "8,16", "--power-limits", "none,150")
# Hangs at one point of the grid while a file exists.
HANGS_ONCE = (
    """
import os, time
if os.path.exists("hang") and os.environ["WATTLOOP_BATCH_SIZE"] == "16" and "p150" in os.environ["WATTLOOP_RECURRENCE"]:
    os.rename("hang", "hung")
    with open("begun.part", "w") as begun:
        begun.write(f"{os.getpid()} {os.getpid()}")
    os.replace("begun.part", "begun")
    time.sleep(600)
"""
    + TRAINING
)


@pytest.fixture
def sweep(tmp_path: Path) -> LocalJob:
    made = LocalJob(tmp_path / "run", "sweep")
    made.folder.mkdir()
    made.job(HANGS_ONCE)
    return made


def rows_of(sweep: LocalJob) -> list[dict[str, str]]:
    with (sweep.output / "sweep.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def points_of(sweep: LocalJob) -> list[tuple[str, str, str]]:
    return [(row["batch_size"], row["power_limit_watts"], row["repeat"]) for row in rows_of(sweep)]


def test_a_killed_sweep_goes_on_where_it_was(sweep: LocalJob, capsys: pytest.CaptureFixture[str]) -> None:
    (sweep.folder / "hang").touch()
    run = sweep.start(*GRID)
    sweep.wait_for_training(run)
    processes = list(descendants_of(run.pid))
    # The runs that have ended are in the table already.
    assert [(row["batch_size"], row["power_limit_watts"]) for row in rows_of(sweep)] == [
        ("8", ""),
        ("8", "150"),
        ("16", ""),
    ]
    kill(run.pid)
    run.ended()
    wait_for_end(processes)
    assert sweep.run(*GRID) == 0
    expected = list(itertools.product(("8", "16"), ("", "150"), ("0",)))
    assert points_of(sweep) == expected
    assert {row["outcome"] for row in rows_of(sweep)} == {"reached"}
    assert {row["energy_origin"] for row in rows_of(sweep)} == {"simulated"}
    assert (sweep.output / "tradeoff.png").stat().st_size > 10_000
    with open_store(sweep.output / "wattloop.db") as store:
        (uid,) = {each.body["metadata"]["uid"] for each in store.objects.list("RecurringTrainingJob", "local")}
        results = [(record.recurrence, record.attempt, record.result) for record in store.observations.of_job(uid)]
    assert [each for each in results if each[1] or each[2] != "Reached"] == [(3, 0, "Disrupted"), (3, 1, "Reached")]
    assert len(results) == len(expected) + 1
    output = capsys.readouterr()
    assert output.out.count("1/1") == 4
    assert "yes" in output.out
    # A lower limit is slower, and a larger grid adds to the same folder.
    before = {(row["batch_size"], row["power_limit_watts"]): float(row["time_seconds"]) for row in rows_of(sweep)}
    assert before["8", "150"] > before["8", ""]
    assert sweep.run("--batch-sizes", "8", "--power-limits", "200", "--repeats", "2") == 0
    assert len(rows_of(sweep)) == 4 + 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--power-limits", "150,5000"), "--power-limits: found 5000, expected 100 to 400 W"),
        (("--repeats", "100000"), "expected at most 10000"),
        (("--batch-sizes", "16777217"), "--batch-sizes: found 16777217, expected at most 16777216"),
    ],
)
def test_a_grid_that_cannot_be_run_is_refused(
    sweep: LocalJob, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    assert sweep.run(*options) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--batch-sizes", "8,x"), "found 'x', expected an integer"),
        (("--batch-sizes", "8,8"), "found '8,8', expected each value once"),
        (("--power-limits", "0"), "found '0', expected an integer of at least 1"),
        (("--repeats", "1.5"), "found '1.5', expected an integer of at least 1"),
        (("--batch-sizes", "9" * 20), "expected an integer of at least 1 and at most 18 digits"),
        (("--batch-sizes", ",".join(map(str, range(1, 300)))), "found 299 values, expected at most 256"),
    ],
)
def test_an_invalid_list_is_a_usage_error(
    sweep: LocalJob, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        sweep.run(*options)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_folder_of_another_command_or_training_is_refused(
    sweep: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep.run("--batch-sizes", "8") == 0
    assert main(["run", str(sweep.manifest), "--output", str(sweep.output), "--simulated-gpus", "1"]) == 2
    assert "its command is 'sweep of training" in capsys.readouterr().err
    sweep.job(TRAINING, objective={"target": {"metric": "accuracy", "threshold": "0.3"}, "maxEpochs": 20})
    assert sweep.run("--batch-sizes", "8") == 2
    assert "choose another --output" in capsys.readouterr().err


def test_a_sweep_in_which_no_run_reaches_the_target_has_failed(
    sweep: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.job(TRAINING.replace("metric=0.1", "metric=0.0"))
    assert sweep.run("--batch-sizes", "32") == 1
    assert [row["outcome"] for row in rows_of(sweep)] == ["exhausted"]
    assert "no run reached the target" in capsys.readouterr().err
