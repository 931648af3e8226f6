"""A local run starts its own processes from any folder, whatever files are there."""

import os
from pathlib import Path

import pytest

from support.local_runs.local_runs import TRAINING, LocalJob
from wattloop.commands.main import VARIABLE

PACKAGES = (
    "wattloop",
    "wattloop_agent",
    "wattloop_operator",
    "wattloop_planner",
    "wattloop_research",
    "nvml_simulator",
)
# The script is read from its own folder, as Python does for every script.
BESIDE = "import beside_the_script\n"


def test_a_run_starts_from_a_folder_that_has_folders_and_files_named_like_modules(
    local_job: LocalJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_job.job(BESIDE + TRAINING)
    (local_job.folder / "beside_the_script.py").touch()
    # The parent of a clone has the first of them.
    for package in PACKAGES:
        (tmp_path / package / "agent").mkdir(parents=True)
    (tmp_path / "json.py").write_text("raise ImportError('a file of the working folder was imported')\n")
    monkeypatch.chdir(tmp_path)
    assert local_job.run("--recurrences", "1") == 0
    assert local_job.outcomes() == [("0", "0", "reached")]


def test_a_training_gets_the_users_number_of_threads_and_not_that_of_wattloops_decisions(local_job: LocalJob) -> None:
    threads = f"import os\nopen('threads', 'w').write(os.environ.get('{VARIABLE}', 'not set'))\n"
    local_job.job(threads + TRAINING)
    assert local_job.run("--recurrences", "1") == 0
    assert os.environ[VARIABLE] == "1"
    assert (local_job.folder / "threads").read_text() == "not set"


def test_a_script_beside_a_clone_imports_the_installed_client(local_job: LocalJob) -> None:
    # A folder without modules does not hide a package, however the package is installed.
    for package in PACKAGES:
        (local_job.folder / package / "agent").mkdir(parents=True)
    local_job.job(TRAINING)
    assert local_job.run("--recurrences", "1") == 0
    assert local_job.outcomes() == [("0", "0", "reached")]
