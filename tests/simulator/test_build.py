"""Building the library: once, and with clear errors."""

import subprocess
import sys
from pathlib import Path

import pytest

import nvml_simulator
from nvml_simulator.build import main
from wattloop.errors import OperationError


def test_concurrent_builds_create_one_library_that_is_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = [sys.executable, "-m", "nvml_simulator.build"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    builds = [subprocess.Popen(command, text=True, **pipes) for _ in range(2)]
    paths, errors = (set(texts) for texts in zip(*(build.communicate() for build in builds), strict=True))
    assert errors == {""}
    assert [build.returncode for build in builds] == [0, 0]
    built = Path(paths.pop().strip())
    assert paths == set()
    assert built.is_relative_to(tmp_path / "wattloop" / "nvml_simulator")
    found = built.stat()
    assert nvml_simulator.build_library() == built
    assert built.stat() == found
    assert sorted(file.name for file in built.parent.iterdir()) == ["libnvidia-ml.so.1", "lock"]


def test_a_missing_compiler_is_reported_with_the_packages_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(OperationError, match=r"need a C compiler, but 'no-such-compiler' cannot be run.*CC"):
        nvml_simulator.build_library()
    assert main() == 1
    assert "no-such-compiler" in capsys.readouterr().err


def test_the_output_of_a_failed_compiler_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "broken-compiler"
    compiler.write_text("#!/bin/sh\necho 'compiler error' >&2\nexit 3\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(OperationError, match=r"exit code 3\):\ncompiler error"):
        nvml_simulator.build_library()
    assert not list((tmp_path / "cache").rglob("*.so*"))


def test_an_unwritable_cache_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(OperationError, match="set XDG_CACHE_HOME"):
        nvml_simulator.build_library()


def test_child_processes_find_the_library_before_other_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/other")
    environment = nvml_simulator.environment(tmp_path / "gpus")
    assert environment == {
        "LD_LIBRARY_PATH": f"{nvml_simulator.build_library().parent}:/opt/other",
        "WATTLOOP_SIMULATED_GPUS_STATE": str(tmp_path / "gpus"),
        "WATTLOOP_AGENT_LOCK_DIRECTORY": str(tmp_path / "gpus.locks"),
    }
