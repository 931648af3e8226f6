"""The reporting API on the loopback interface, in a thread of the local run."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import uvicorn

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
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(create_app(service), log_config=None, access_log=False, lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            # The socket listens already: a request that comes before the server is up waits in its queue.
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
