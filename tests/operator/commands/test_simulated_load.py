"""`wattloop run` of an unchanged script on simulated GPUs: without a load, and with a declared one."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from support.local_runs.local_runs import LocalJob
from wattloop.commands.main import main
from wattloop_operator.history.energy_origin import IDLE_NOTE

pytestmark = pytest.mark.processes

# It knows neither Wattloop nor a simulator.
SCRIPT = """
import os, time
value, spent = 0.0, 0
for epoch in range(1, 6):
    begin = time.process_time()
    while time.process_time() - begin < 0.15:
        spent += sum(range(1000))
    value += 0.1
    print(f"epoch={epoch} accuracy={value:.12f}", flush=True)
"""
UNCHANGED: dict[str, Any] = {"reporting": {"source": "Logs"}, "power": {"mode": "None"}}


@pytest.fixture
def script_job(tmp_path: Path) -> LocalJob:
    job = LocalJob(tmp_path / "run")
    job.folder.mkdir()
    job.job(SCRIPT, **UNCHANGED)
    return job


def annotate(job: LocalJob, load: str) -> None:
    document = YAML().load(job.manifest)
    document["metadata"]["annotations"] = {"wattloop.dev/simulated-load": load}
    YAML().dump(document, job.manifest)


def test_a_run_without_a_load_says_in_all_its_output_that_the_energies_are_not_its_own(
    script_job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    # The time of these GPUs runs.
    assert script_job.run("--recurrences", "2", "--gpu-model", "K80") == 0
    output = capsys.readouterr()
    assert IDLE_NOTE in output.out
    assert IDLE_NOTE in output.err
    assert "declare a load: --simulated-load cpu" in output.err
    assert [row["energy_origin"] for row in script_job.rows()] == ["simulated-idle"] * 2
    database = f"sqlite:///{script_job.output / 'wattloop.db'}"
    assert main(["history", "tiny", "--database", database]) == 0
    output = capsys.readouterr()
    assert IDLE_NOTE in " ".join(output.out.split())
    assert IDLE_NOTE in output.err


@pytest.mark.parametrize(("declared", "origin"), [("option", "busy=0.5"), ("annotation", "cpu")])
def test_a_declared_load_gives_an_unchanged_script_time_and_energy(
    script_job: LocalJob, capsys: pytest.CaptureFixture[str], declared: str, origin: str
) -> None:
    options = ["--simulated-load", origin] if declared == "option" else []
    if declared == "annotation":
        annotate(script_job, origin)
    assert script_job.run("--recurrences", "1", *options) == 0
    output = capsys.readouterr()
    assert "simulated GPU without" not in output.out + output.err
    (row,) = script_job.rows()
    assert row["energy_origin"] == "simulated-load"
    seconds, joules = float(row["time_seconds"]), float(row["energy_joules"])
    assert seconds > 0.5
    # Between an idle A100 and one that is busy all the time.
    assert 60 < joules / seconds < 330
    if declared == "option":
        assert joules / seconds == pytest.approx((55 + 321) / 2, rel=0.25)


def test_a_folder_holds_the_figures_of_one_load(script_job: LocalJob, capsys: pytest.CaptureFixture[str]) -> None:
    script_job.job(SCRIPT, **UNCHANGED, suspend=True)
    assert script_job.run("--simulated-load", "cpu") == 1
    capsys.readouterr()
    assert script_job.run("--simulated-load", "busy=0.5") == 2
    assert "its load is 'cpu', this run's is 'busy=0.5'; choose another --output" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--simulated-load", "gpu"), "--simulated-load: found 'gpu', expected cpu, or busy=F"),
        (("--simulated-load", "busy=1.5"), "expected cpu, or busy=F with F above 0 and at most 1"),
        (("--simulated-load", "busy=nan"), "expected cpu, or busy=F"),
        (("--simulated-load", "cpu", "--gpu-model", "K80"), "--gpu-model K80 has no energy counter: its energy is the"),
    ],
)
def test_an_invalid_load_is_refused(
    script_job: LocalJob, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    assert script_job.run(*options) == 2
    assert message in capsys.readouterr().err


def test_an_invalid_load_of_the_manifest_is_named(script_job: LocalJob, capsys: pytest.CaptureFixture[str]) -> None:
    annotate(script_job, "busy")
    assert script_job.run() == 2
    assert "job.yaml: annotation wattloop.dev/simulated-load: found 'busy'" in capsys.readouterr().err
