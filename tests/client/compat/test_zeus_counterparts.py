"""The table of docs/coming-from.md about Zeus: each of its public names has a counterpart, and ours exist."""

import ast
import importlib
import importlib.util
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "coming-from.md"
SECTION = PAGE.read_text(encoding="utf-8").partition("## Zeus\n")[2].partition("\n## ")[0]
ROWS = [line.strip("|").split("|") for line in SECTION.splitlines() if line.startswith("| ")][1:]
MODULES = (
    "zeus.monitor.energy",
    "zeus.monitor.power",
    "zeus.monitor.power_streaming",
    "zeus.monitor.temperature",
    "zeus.monitor.price",
    "zeus.monitor.carbon",
    "zeus.profile",
    "zeus.show_env",
    "zeus.optimizer.power_limit",
    "zeus.callback",
    "zeus.metric",
    "zeus.utils.metric",
    "zeus.utils.lr_scaler",
    "zeus.utils.framework",
    "zeus.utils.testing",
    "zeus.optimizer.batch_size.client",
    "zeus.optimizer.pipeline_frequency.optimizer",
    "zeus.optimizer.pipeline_frequency.frequency_controller",
    "zeus._legacy.simulate",
    "zeus._legacy.job",
    "zeus._legacy.policy.mab",
    "zeus._legacy.policy.optimizer",
)


def public_names(module: str) -> set[str]:
    """The public classes and functions that a module of Zeus defines, without importing what it needs."""
    root = importlib.util.find_spec("zeus")
    path = Path(root.origin).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
    body = ast.parse(path.read_text()).body
    found = {each.name for each in body if isinstance(each, ast.ClassDef | ast.FunctionDef)}
    return {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize("module", MODULES)
def test_each_public_name_of_zeus_has_a_row(module: str) -> None:
    named = {name for row in ROWS for name in re.findall(r"`([A-Za-z_]+)(?:\([^`]*\))?`", row[0])}
    assert public_names(module) - named == set()
    assert any(f"`{module}`" in row[0] or f"-m {module}`" in row[0] for row in ROWS)
