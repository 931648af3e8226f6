"""Programs are found in the documented order, built at most once, and never partially."""

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from support.binaries import build

HELLO = build.Module("hello", "example.invalid/nothing", ("main.version={VERSION}",))
BINARY = build.Binary("hello", HELLO, "wattloop.dev/hello", ("--version",))
needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="no Go")


@pytest.fixture
def hello(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small module instead of the real ones, and an empty cache; returns the module's folder."""
    folder = tmp_path / "hello"
    folder.mkdir()
    requirement = "require example.invalid/nothing v1.2.3\n\nreplace example.invalid/nothing => ./nothing\n"
    (folder / "go.mod").write_text(f"module wattloop.dev/hello\n\ngo 1.24\n\n{requirement}")
    (folder / "go.sum").touch()
    (folder / "nothing").mkdir()
    (folder / "nothing" / "go.mod").write_text("module example.invalid/nothing\n")
    (folder / "nothing" / "nothing.go").write_text("package nothing\n")
    imports = 'import _ "example.invalid/nothing"\n\n'
    (folder / "main.go").write_text(
        f"package main\n\n{imports}var version string\n\nfunc main() {{ println(version) }}\n"
    )
    monkeypatch.setattr(build, "MODULES", tmp_path)
    monkeypatch.setitem(build.BINARIES, "hello", BINARY)
    if shutil.which("go"):
        # Keep Go's cache of compiled packages; the tests are about ours.
        compiled = subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout
        monkeypatch.setenv("GOCACHE", compiled.strip())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return folder


def program(path: Path, prints: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{prints}'\n")
    path.chmod(0o755)
    return path


@needs_go
def test_a_built_program_has_its_version_and_is_reused(hello: Path) -> None:
    assert build.find("hello") is None
    path = build.ensure(["hello"])["hello"]
    assert subprocess.run([path], capture_output=True, text=True, check=True).stderr == "v1.2.3\n"
    assert path.is_relative_to(build.cache_folder())
    assert build.find("hello") == path


@needs_go
def test_concurrent_requests_share_one_build(hello: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(build.ensure, [["hello"], ["hello"]])
    assert first == second
    printed = capfd.readouterr().err
    assert printed.count("built hello") == 1
    assert re.search(r"^\[1 of 1 built, 0\.\d min\] hello: built hello v1\.2\.3 in", printed, re.MULTILINE)


@needs_go
def test_a_failed_build_reports_the_cause_and_leaves_nothing(hello: Path) -> None:
    (hello / "main.go").write_text("package main\n\nfunc main() { undefined() }\n")
    with pytest.raises(build.BuildFailedError, match="undefined: undefined"):
        build.ensure(["hello"])
    assert build.find("hello") is None


def test_assets_from_the_environment_take_precedence(
    hello: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = program(tmp_path / "assets" / "hello")
    program(tmp_path / "path" / "hello", "v1.2.3")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(named.parent))
    monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=os.pathsep)
    assert build.find("hello") == named


@pytest.mark.parametrize(
    ("printed", "minors", "taken"),
    [
        ("v1.2.3", None, True),
        ("hello 1.2.3", None, True),
        ("v1.2.30", None, False),
        ("v11.2.3", None, False),
        ("v1.2.3-rc.1", None, False),
        ("Client Version: v1.1.30-gke.100 Kustomize Version: v5.5.0", range(-1, 2), True),
        ("v1.3.0", range(-1, 2), True),
        ("v1.4.0", range(-1, 2), False),
        ("v1.0.9", range(-1, 2), False),
        ("v2.2.3", range(-99, 99), False),
        ("v1.2.0-alpha.1", range(1), False),
        ("no version", range(-99, 99), False),
    ],
)
def test_a_program_on_path_is_used_only_in_a_version_that_fits(
    printed: str, minors: range | None, taken: bool, hello: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(build.BINARIES, "hello", replace(BINARY, minors=minors))
    path = program(tmp_path / "path" / "hello", printed)
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
    assert build.find("hello") == (path if taken else None)
    if taken:
        (line,) = build.origins(build.ensure(["hello"]))
        assert line.endswith(f" of {path}")


def test_a_build_of_the_same_sources_by_another_go_is_used(
    hello: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(build.BinariesUnavailableError, match=r"no hello in .* install Go"):
        build.ensure(["hello"])
    key = build._keyed_folder(HELLO, "go1.99-any")
    path = program(key / "hello")
    assert build.ensure(["hello"]) == {"hello": path}
