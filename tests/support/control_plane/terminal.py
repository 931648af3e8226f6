"""Output of a test run beside pytest's: progress of preparations, and skipped tests."""

import contextlib

import pytest


def past_capture(config: pytest.Config) -> contextlib.AbstractContextManager[None]:
    """A context in which printed text appears immediately."""
    capture = config.pluginmanager.getplugin("capturemanager")
    context: contextlib.AbstractContextManager[None] = (
        capture.global_and_fixture_disabled() if capture else contextlib.nullcontext()
    )
    return context


def skipped_for(terminalreporter: pytest.TerminalReporter, reason: str) -> int:
    """Number of tests skipped with a reason that contains this text."""
    return sum(
        isinstance(report.longrepr, tuple) and reason in report.longrepr[2]
        for report in terminalreporter.stats.get("skipped", [])
    )
