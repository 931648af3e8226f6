"""The reporting API on the loopback interface, in a thread of the local run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from wattloop.commands.settings import Address
from wattloop_operator.http.server import HttpService
from wattloop_operator.reporting.app import create_app
from wattloop_operator.reporting.service import ReportService


@contextlib.contextmanager
def running_report_server(service: ReportService) -> Iterator[str]:
    """Serve the reporting API for as long as the block lasts.

    Args:
        service: Takes in the reports.

    Yields:
        Its address.
    """
    server = HttpService("reporting API", create_app(service), Address("127.0.0.1", 0))
    server.start()
    try:
        # The socket listens already: a request that comes before the server is up waits in its queue.
        yield server.url
    finally:
        server.stop()
