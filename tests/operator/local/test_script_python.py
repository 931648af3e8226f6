"""A script that lacks a module is distinguished from one that runs with another Python than its user thinks."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from support.local_runs.local_runs import LocalJob

pytestmark = pytest.mark.processes


def test_a_module_that_wattloops_own_python_lacks_is_named_once_with_the_way_to_another(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    local_job.job("import no_such_module.part")
    assert local_job.run("--recurrences", "2") == 1
    error = capsys.readouterr().err
    own = Path(sys.executable).parent / "python"
    assert error.count(f"{own} (Wattloop's own Python) has no module no_such_module; for another Python, begin") == 1


def test_another_python_without_the_client_is_named_with_the_command_that_installs_it(
    local_job: LocalJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    venv.create(tmp_path / "own", with_pip=False)
    python = str(tmp_path / "own" / "bin" / "python")
    local_job.job()
    local_job.manifest.write_text(local_job.manifest.read_text().replace("- python\n", f"- {python}\n"))
    assert local_job.run("--recurrences", "1") == 1
    error = capsys.readouterr().err
    assert error.count(f"{python} has no Wattloop client; install it with: {python} -m pip install /") == 1


def test_another_failure_names_no_python(local_job: LocalJob, capsys: pytest.CaptureFixture[str]) -> None:
    local_job.job("print('missing.csv'); open('missing.csv')")
    assert local_job.run("--recurrences", "1") == 1
    assert "own Python" not in capsys.readouterr().err
