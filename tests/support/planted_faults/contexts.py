"""A plugin of pytest that records which lines of the product each test reaches, also in processes that it starts.

    export PYTHONPATH=tests WATTLOOP_CONTEXTS=build/contexts
    PYTEST_ADDOPTS="-p support.planted_faults.contexts" make test-unit

Afterwards `.venv/bin/coverage combine --data-file=build/contexts/.coverage build/contexts` makes one file of those that
the processes left. A process that is killed leaves none. coverage.py names the tests by its contexts: a dynamic one in
pytest's own processes, and the variable WATTLOOP_TEST in those that a test starts. With the variable
WATTLOOP_CONTEXTS_FILES, a list such as `*/run/*.py,*/power/cost.py`, lines of these files alone are recorded, in half
the time.
"""

import os
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

PACKAGES = (
    "wattloop",
    "wattloop_operator",
    "wattloop_agent",
    "wattloop_planner",
    "wattloop_research",
    "nvml_simulator",
)
CONFIGURATION = """\
[run]
data_file = {folder}/.coverage
parallel = true
{files}
context = ${{WATTLOOP_TEST-}}
patch = _exit
sigterm = true
disable_warnings = no-data-collected, module-not-imported, module-not-measured
"""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Begin to record; processes that are started from now on record too."""
    folder = Path(os.environ["WATTLOOP_CONTEXTS"]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "coverage.ini"
    chosen = os.environ.get("WATTLOOP_CONTEXTS_FILES")
    files = f"include = {chosen}" if chosen else f"source_pkgs = {', '.join(PACKAGES)}"
    path.write_text(CONFIGURATION.format(folder=folder, files=files), encoding="utf-8")
    recorded = coverage.Coverage(config_file=str(path), data_suffix=True)
    # By the module coverage.py starts itself in each Python process whose environment has this.
    os.environ["COVERAGE_PROCESS_START"] = str(path)
    config.stash[_RECORDED] = recorded
    recorded.start()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Name the test in what is recorded until the next one begins, and write what a file's tests reached."""
    recorded = item.config.stash[_RECORDED]
    recorded.switch_context(item.nodeid)
    os.environ["WATTLOOP_TEST"] = item.nodeid
    result = yield
    if nextitem is None or nextitem.path != item.path:
        recorded.save()
    return result


def pytest_unconfigure(config: pytest.Config) -> None:
    """Write what was recorded."""
    recorded = config.stash.get(_RECORDED, None)
    if recorded is not None:
        recorded.stop()
        recorded.save()


_RECORDED = pytest.StashKey[coverage.Coverage]()
