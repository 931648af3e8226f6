"""A plugin of pytest: which of the two sets of tests runs, and how much wall and processor time each test took.

`make test` runs `--set=usual`, `make test-exhaustive` runs `--set=exhaustive`, and without the option all tests run. A
test with the marker `exhaustive` is in the second set. A property is in both: in the second with more examples.

The times are properties of each test in pytest's JUnit file. Wall time depends on what else the machine does; processor
time hardly does, and includes the processes that a test started, if they were waited for. The time of a fixture of
several tests is counted with the first of them.
"""

import os
import time
from collections.abc import Generator
from typing import Final

import pytest
from hypothesis import settings

from support.test_sets.recorded_times import group_of, recorded_seconds
from support.test_sets.share import share_of

USUAL: Final = "usual"
EXHAUSTIVE: Final = "exhaustive"
# Of a test that was never recorded.
NEW_TEST_SECONDS = 5.0
EXHAUSTIVE_EXAMPLES = 500
WALL, PROCESSOR, IDENTIFIER = "wall_seconds", "processor_seconds", "identifier"
# The same examples in each run, and no verdict on a machine's speed.
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that select tests."""
    group = parser.getgroup("sets of tests", "docs/internals/testing.md describes them")
    group.addoption("--set", choices=(USUAL, EXHAUSTIVE), help="run the tests of this set alone")
    group.addoption("--share", metavar="COMMIT", help="of the exhaustive set, run the tenth that this commit draws")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give properties more examples in the exhaustive set; `--hypothesis-profile` comes later and takes precedence."""
    if config.getoption("set") == EXHAUSTIVE or config.getoption("share"):
        settings.register_profile(EXHAUSTIVE, settings.get_profile("ci"), max_examples=EXHAUSTIVE_EXAMPLES)
        settings.load_profile(EXHAUSTIVE)


def is_in(chosen: str, item: pytest.Item) -> bool:
    """Whether a set has the test."""
    exhaustive = item.get_closest_marker(EXHAUSTIVE) is not None
    if chosen == USUAL:
        return not exhaustive
    return exhaustive or item.get_closest_marker("hypothesis") is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that are not in the set, or not in the share."""
    chosen, commit = config.getoption("set"), config.getoption("share")
    if commit:
        chosen = EXHAUSTIVE
    if not chosen:
        return
    kept = [item for item in items if is_in(chosen, item)]
    if commit:
        new = {group_of(item.nodeid): NEW_TEST_SECONDS for item in kept}
        drawn = set(share_of(new | recorded_seconds(), commit))
        kept = [item for item in kept if group_of(item.nodeid) in drawn]
    left_out = set(items) - set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = kept


def _processor_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note when a test begins."""
    item.stash[_BEGIN] = time.monotonic(), _processor_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the times to the report of the teardown, which a worker of pytest-xdist sends to its parent."""
    report = yield
    if report.when == "teardown":
        began, used = item.stash[_BEGIN]
        report.user_properties += [
            (IDENTIFIER, item.nodeid),
            (WALL, time.monotonic() - began),
            (PROCESSOR, _processor_seconds() - used),
        ]
    return report


_BEGIN = pytest.StashKey[tuple[float, float]]()
