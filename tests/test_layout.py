"""Rules for the layout of the repository."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOTS = ("client", "operator", "agent", "planner", "research", "simulator")
MAX_FILE_LINES = 500
# One callback for each library of trainings, and the names of Zeus that `wattloop.compat.zeus` has to have.
NAMES_OF_OTHER_LIBRARIES = {"Energy": 2, "Measurement": 2, "Time": 2, "WattloopCallback": 3}


def test_the_folder_operator_is_no_package() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists(), "it would shadow the standard library's operator"


def test_the_interpreter_keeps_its_own_operator_in_the_repository_s_root() -> None:
    words = [sys.executable, "-c", "import operator; print(operator.__file__)"]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not Path(found.strip()).is_relative_to(ROOT / "operator")


@pytest.mark.parametrize("root", ROOTS)
def test_every_package_is_typed_and_no_file_is_too_long(root: str) -> None:
    packages = [path.parent for path in (ROOT / root).glob("*/__init__.py")]
    assert packages
    assert all((package / "py.typed").exists() for package in packages)
    long = [path for path in (ROOT / root).rglob("*.py") if len(path.read_text().splitlines()) > MAX_FILE_LINES]
    assert long == []


def test_a_module_name_stands_for_one_module() -> None:
    modules = [path for root in ROOTS for path in (ROOT / root).rglob("*.py") if not path.stem.startswith("__")]
    # A module of command_line has the name of its command.
    found = Counter(path.stem for path in modules if path.parent.name != "command_line")
    assert {name: count for name, count in found.items() if count > 1} == {}


def test_a_public_class_name_stands_for_one_class() -> None:
    found = Counter(
        node.name
        for root in ROOTS
        for path in (ROOT / root).rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name: count for name, count in found.items() if count > 1} == NAMES_OF_OTHER_LIBRARIES
