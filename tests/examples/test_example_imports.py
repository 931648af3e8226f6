"""What the examples import of Wattloop exists; integrations, which need a framework, tests/integrations imports."""

import ast
import importlib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
IMPORTS = [
    (str(path.relative_to(EXAMPLES)), node.module, alias.name)
    for path in sorted(EXAMPLES.rglob("*.py"))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom)
    and str(node.module).partition(".")[0] in {"wattloop", "nvml_simulator"}
    and not str(node.module).startswith("wattloop.integrations")
    for alias in node.names
]


@pytest.mark.parametrize(("path", "module", "name"), IMPORTS)
def test_a_name_that_an_example_imports_exists(path: str, module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name), path
