"""The live page of a database or a cluster, served on the loopback interface, and Chromium to look at it."""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator

from playwright.sync_api import Browser, sync_playwright

from wattloop.commands.settings import Address
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Transport
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.page.change_stream import ChangeStreams, OpenStreams
from wattloop_operator.page.cluster_page import create_cluster_page
from wattloop_operator.page.job_source import JobSource
from wattloop_operator.page.page_app import create_page
from wattloop_operator.page.request_guard import RequestGuard
from wattloop_operator.page.stored_jobs import StoredJobs
from wattloop_operator.store.store import Store

# Chromium asks nobody on the network for anything, in a profile that is deleted.
CHROMIUM_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
INTERVAL_SECONDS = 0.1


class ChromiumMissingError(Exception):
    """Chromium is not installed; the text says how to install it."""


@contextlib.contextmanager
def serving(store: Store, address: str | None = None) -> Iterator[str]:
    """Serve the page of a store; gives its URL."""
    with serving_source(StoredJobs(store, address)) as url:
        yield url


@contextlib.contextmanager
def serving_source(source: JobSource) -> Iterator[str]:
    """Serve the page of a source; gives its URL."""
    streams = OpenStreams()
    page = create_page(source, ChangeStreams(source, streams, INTERVAL_SECONDS), ("127.0.0.1", "localhost"))
    with _served(page, streams) as url:
        yield url


@contextlib.contextmanager
def serving_viewers(transport: Transport, clock: Callable[[], float] = time.monotonic) -> Iterator[str]:
    """Serve the page of a cluster to viewers who sign in; gives its URL."""
    streams = OpenStreams()
    page = create_cluster_page(ClusterApi(transport), streams, ("127.0.0.1",), is_https=False, clock=clock)
    with _served(page, streams) as url:
        yield url


@contextlib.contextmanager
def _served(page: RequestGuard, streams: OpenStreams) -> Iterator[str]:
    with HttpService("live page", page, Address("127.0.0.1", 0)) as server:
        try:
            yield server.url
        finally:
            streams.end()


@contextlib.contextmanager
def running_browser() -> Iterator[Browser]:
    """Chromium without a window."""
    program = shutil.which("chromium")
    if program is None:
        raise ChromiumMissingError("Chromium is not installed; make chromium installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=CHROMIUM_OPTIONS)
        yield browser
        browser.close()
