"""Fixtures of the client's tests."""

from collections.abc import Iterator

import pytest

from support.reporting.report_server import ReportServer, running_report_server


@pytest.fixture
def report_server() -> Iterator[ReportServer]:
    """An HTTP server that records reports and answers them as the test configures it."""
    with running_report_server() as server:
        yield server
