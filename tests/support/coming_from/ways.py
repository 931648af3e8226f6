"""How a row of docs/coming-from.md is run: here, by another test, or not at all, for a reason."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from wattloop.commands.main import main

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
PROBES_JOB = ROOT / "examples" / "probes" / "job.yaml"


@dataclass(frozen=True)
class Elsewhere:
    """Another test runs the row.

    Attributes:
        test: File, two colons and name of the test.
    """

    test: str


@dataclass(frozen=True)
class Reason:
    """Nothing of the row can run."""

    text: str


# A function runs the row in a folder with the small inputs of `workspace.py`.
Way = Callable[[Path], None] | Elsewhere | Reason


def rows_of(system: str) -> list[tuple[str, str]]:
    """The cells of the rows of a system's table."""
    section = PAGE.partition(f"\n## {system}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in re.split(r" ?(?<!\\)\| ?", line.strip().strip("|"))] for line in lines[2:]]
    return [(theirs, ours) for theirs, ours in rows]


def way_of(theirs: str, ways: Mapping[str, Way]) -> list[str]:
    """The keys that a left cell begins with, without backticks; one, if the table of ways is right."""
    text = theirs.replace("`", "")
    found = [key for key in ways if text.startswith(key)]
    # A longer key is more exact.
    return [max(found, key=len)] if found else []


def commands(*each: str, makes: tuple[str, ...] = ()) -> Callable[[Path], None]:
    """Commands of `wattloop` in a folder, which succeed and leave these files."""

    def run(folder: Path) -> None:
        for line in each:
            try:
                code = main([word.replace("@", f"{folder}/") for word in line.split()])
            except SystemExit as ended:
                code = 0 if ended.code is None else int(ended.code)
            assert code == 0, line
        for name in makes:
            assert list(folder.glob(name)), name

    return run


def python(text: str) -> Callable[[Path], None]:
    """Lines of Python, with `folder`."""

    def run(folder: Path) -> None:
        exec(compile(text, "docs/coming-from.md", "exec"), {"folder": folder})

    return run


def job(**spec: Any) -> Callable[[Path], None]:
    """A manifest with these fields of `spec` in those of an example is valid; None removes one."""

    def run(folder: Path) -> None:
        document = yaml.safe_load(PROBES_JOB.read_text(encoding="utf-8"))
        _merge(document["spec"], spec)
        path = folder / "job.yaml"
        path.write_text(yaml.safe_dump(document))
        assert main(["validate", str(path)]) == 0

    return run


def _merge(into: dict[str, Any], given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        elif value is None:
            into.pop(name, None)
        else:
            into[name] = value


def trainer(*arguments: str, ranks: int = 4) -> Callable[[Path], None]:
    """`examples/pipeline/models.py` with these arguments and as many ranks, without PyTorch: `--dry-run`, `--list`."""

    def run(folder: Path) -> None:
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "pipeline" / "models.py"), *arguments],
            cwd=folder,
            env={**os.environ, "WORLD_SIZE": str(ranks), "RANK": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    return run
