"""What a test run says on the terminal beside pytest's own words: progress of preparations, and what was skipped."""

from __future__ import annotations

import contextlib

import pytest


def past_capture(config: pytest.Config) -> contextlib.AbstractContextManager[None]:
    """While this is entered, what is printed is seen at once."""
    capture = config.pluginmanager.getplugin("capturemanager")
    shown: contextlib.AbstractContextManager[None] = (
        capture.global_and_fixture_disabled() if capture else contextlib.nullcontext()
    )
    return shown


def skipped_for(terminalreporter: pytest.TerminalReporter, reason: str) -> int:
    """How many tests were skipped with a reason that contains this."""
    return sum(
        isinstance(report.longrepr, tuple) and reason in report.longrepr[2]
        for report in terminalreporter.stats.get("skipped", [])
    )
