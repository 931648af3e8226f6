"""A plugin of pytest that lists the tests by the processor time that they and the processes they started used.

    PYTHONPATH=tests PYTEST_ADDOPTS="-p support.processor_time" make test-integrations

Durations depend on what else the machine does; processor time hardly does. The time of a fixture of several tests is
counted with the first of them, and that of a process only if it, and those between it and the test, are waited for.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

SHOWN = 40
PROPERTY = "processor_seconds"


def _used_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note the begin, for the report of the test's end."""
    item.stash[_BEGIN] = _used_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the time to the report of the teardown, which a worker of pytest-xdist sends to its parent."""
    report = yield
    if report.when == "teardown":
        report.user_properties.append((PROPERTY, _used_seconds() - item.stash[_BEGIN]))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tests that used most, and the sum of all."""
    reports = [report for each in terminalreporter.stats.values() for report in each]
    used = {
        report.nodeid: float(value)
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == PROPERTY
    }
    terminalreporter.section(f"processor time: {sum(used.values()):.1f} s, without imports of the tests")
    for test in sorted(used, key=lambda test: -used[test])[:SHOWN]:
        terminalreporter.write_line(f"{used[test]:8.2f} s  {test}")


_BEGIN = pytest.StashKey[float]()
