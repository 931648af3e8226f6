"""Names the Python that ran a training script that lacks a module, and how to use another one."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from wattloop.installation import how_to_install

CLIENT = "wattloop"
_MISSING = re.compile(r"^(?:\[\w+\]: ?)?ModuleNotFoundError: No module named '(\w{1,80})[\w.]{0,200}'", re.MULTILINE)


def python_of(program: str, environment: Mapping[str, str]) -> str:
    """The Python that a program runs with: itself, or for another program the first of the PATH; empty for none.

    Args:
        program: The first word of the command.
        environment: Of the process.
    """
    named = program if Path(program).name.startswith("python") else "python"
    return shutil.which(named, path=environment.get("PATH", "")) or ""


def missing_module_text(output: str, python: str) -> str:
    r"""Which Python lacks the module that an output names as missing; empty if it names none.

    Args:
        output: The end of a script's output.
        python: The Python that it ran with.

    Example:
        >>> missing_module_text("ModuleNotFoundError: No module named 'torch'", "/opt/env/bin/python")
        '/opt/env/bin/python has no module torch; for another Python, begin the command of spec.template with its path'
    """
    found = _MISSING.findall(output)
    if not found or not python:
        return ""
    if found[-1] == CLIENT:
        return f"{python} has no Wattloop client; {how_to_install(python=python)}"
    is_own = Path(python).parent == Path(sys.executable).parent
    whose = " (Wattloop's own Python)" if is_own else ""
    other = "for another Python, begin the command of spec.template with its path"
    return f"{python}{whose} has no module {found[-1]}; {other}"
