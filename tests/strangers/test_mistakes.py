"""What `wattloop run` says of scripts of strangers that cannot work as they are, and of a laptop without a GPU."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from support.strangers.definitions import CRASH_AT_ONCE, LOWER_IS_BETTER, PLATEAU, PROCESSOR_ONLY
from support.strangers.on_laptop import local_job

pytestmark = pytest.mark.processes

COMMAND = "import sys; from wattloop.commands.main import main; sys.exit(main())"


def test_a_loss_reaches_with_the_value_that_the_script_printed(tmp_path: Path) -> None:
    local = local_job(LOWER_IS_BETTER, tmp_path)
    assert local.run("--recurrences", "1") == 0
    [row] = local.rows()
    assert row["outcome"] == "reached"
    [log] = (local.output / "logs").glob("*.log")
    printed = dict(re.findall(r"'epoch': (\d+), 'val_loss': (\S+?)}", log.read_text()))
    assert float(row["metric"]) == float(printed[row["epochs"]]) <= 0.02


def test_a_loss_without_a_direction_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local = local_job(replace(LOWER_IS_BETTER, target={}), tmp_path)
    assert local.run("--recurrences", "1") == 2
    assert "direction: Minimize" in capsys.readouterr().err
    assert not local.output.exists()


# tests/operator/local/test_mistakes.py has a module that is missing.
@pytest.mark.exhaustive
def test_a_script_of_another_environment_is_tried_twice_at_one_batch_size_with_its_error_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    local = local_job(CRASH_AT_ONCE, tmp_path)
    assert local.run("--recurrences", "3") == 1
    shown = "".join(capfd.readouterr())
    assert "ModuleNotFoundError: No module named 'polars_of_another_machine'" in shown
    rows = local.rows()
    assert len(rows) == 2
    assert {row["batch_size"] for row in rows} == {"128"}
    assert all(Path(log).exists() for log in re.findall(r"/\S+\.log", shown))


# tests/operator/local/test_unreached_target.py has such a script.
@pytest.mark.exhaustive
def test_a_target_beyond_the_model_is_said_to_be_unreachable_and_saves_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    local = local_job(PLATEAU, tmp_path)
    local.run("--recurrences", "3")
    shown = "".join(capfd.readouterr())
    assert re.search(r"a threshold of 0\.7\d+ would be reached, at the lowest cost with batch size \d+", shown)
    assert "not known yet" in shown
    assert {row["cost_saving_percent"] for row in local.rows()} == {""}
    assert not any(row["outcome"] == "reached" for row in local.rows())


# tests/operator/local/test_processor_agent.py has such a machine.
@pytest.mark.exhaustive
def test_without_a_gpu_times_are_measured_and_no_energy_or_saving_is_claimed(tmp_path: Path) -> None:
    local = local_job(PROCESSOR_ONLY, tmp_path)
    # A process loads a driver once, and this one may have loaded the simulated one.
    run = subprocess.run(
        [sys.executable, "-P", "-c", COMMAND, "run", local.manifest, "--output", local.output, "--recurrences", "2"],
        env={**os.environ, "WATTLOOP_NVML_LIBRARY": str(tmp_path / "libnvidia-ml.so.1")},
        capture_output=True,
        text=True,
        check=False,
    )
    shown = run.stdout + run.stderr
    assert "no GPU" in shown
    for row in local.rows():
        assert row["outcome"] == "reached", shown
        assert float(row["time_seconds"]) > 0
        if row["energy_origin"] != "processor":
            assert (row["energy_joules"], row["cost_joules"], row["cost_saving_percent"]) == ("", "", "")
    assert not re.search(r"\d+ % less", shown)
