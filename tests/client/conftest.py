"""A server for reports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.reporting.report_server import ReportServer, running_report_server


@pytest.fixture
def report_server() -> Iterator[ReportServer]:
    """A real HTTP server that answers reports as the test wants."""
    with running_report_server() as server:
        yield server
