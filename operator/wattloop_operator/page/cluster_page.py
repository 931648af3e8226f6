"""The page of a cluster for several viewers: each one sees the namespaces that he may list."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from cachetools import LRUCache

from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.auth.viewer_rights import ViewerRights
from wattloop_operator.cluster.auth.viewers import MAX_VIEWERS, Viewer, ViewerTokens
from wattloop_operator.domain.tariff import NO_TARIFFS, Tariffs
from wattloop_operator.page.authentication import Authentication
from wattloop_operator.page.change_stream import INTERVAL_SECONDS, ChangeStreams, OpenStreams
from wattloop_operator.page.cluster_jobs import ClusterJobs
from wattloop_operator.page.cluster_reader import ClusterReader, ViewerReader
from wattloop_operator.page.page_app import page_routes
from wattloop_operator.page.request_guard import RequestGuard
from wattloop_operator.page.sessions import Sessions
from wattloop_operator.page.viewer_page import ViewerPage

REMEDY = (
    "give this account the right to list both kinds there, as the chart does for each of operator.namespaces, or take "
    "the namespace out of operator.namespaces (--namespaces)"
)


class ViewerPages:
    """The pages of viewers, over one reading of the cluster. Thread-safe.

    Args:
        api: The API server, with the rights to list both kinds and to review rights.
        streams: The open streams of the server.
        namespaces: The namespaces to read; none: all.
        clock: Monotonic seconds.
        namespace_bytes: Bytes of memory that the objects of a namespace may take.
        tariffs: Price and carbon intensity of electricity by namespace.
    """

    def __init__(
        self,
        api: ClusterApi,
        streams: OpenStreams,
        *,
        namespaces: Sequence[str],
        clock: Callable[[], float],
        namespace_bytes: int,
        tariffs: Tariffs,
    ) -> None:
        self._reader = ClusterReader(
            api, "this cluster", namespaces, clock, remedy=REMEDY, namespace_bytes=namespace_bytes
        )
        self._rights = ViewerRights(api, clock)
        self._streams = streams
        self._tariffs = tariffs
        self._clock = clock
        self._lock = threading.Lock()
        self._pages: LRUCache[Viewer, ViewerPage] = LRUCache(MAX_VIEWERS)

    def page_of_viewer(self, viewer: Viewer) -> ViewerPage:
        """What a viewer sees."""
        with self._lock:
            if viewer not in self._pages:
                self._pages[viewer] = self._page(viewer)
            return self._pages[viewer]

    def _page(self, viewer: Viewer) -> ViewerPage:
        source = ClusterJobs(ViewerReader(self._reader, self._rights, viewer, self._clock), tariffs=self._tariffs)
        streams = ChangeStreams(
            source, self._streams, INTERVAL_SECONDS, self._clock, owner=viewer.owner, user=viewer.name
        )
        return ViewerPage(source, streams)


def create_cluster_page(
    api: ClusterApi,
    streams: OpenStreams,
    hosts: Iterable[str],
    *,
    is_https: bool,
    namespaces: Sequence[str] = (),
    clock: Callable[[], float] = time.monotonic,
    namespace_bytes: int = sys.maxsize,
    tariffs: Tariffs = NO_TARIFFS,
) -> RequestGuard:
    """The ASGI application of the page of a cluster, behind the API server's authentication.

    Args:
        api: The API server; see `ViewerPages`.
        streams: The open streams of the server.
        hosts: Names of the server; requests to others are refused.
        is_https: Whether browsers reach the server by HTTPS alone.
        namespaces: The namespaces to read; none: all.
        clock: Monotonic seconds.
        namespace_bytes: Bytes of memory that the objects of a namespace may take.
        tariffs: Price and carbon intensity of electricity by namespace.
    """
    pages = ViewerPages(
        api, streams, namespaces=namespaces, clock=clock, namespace_bytes=namespace_bytes, tariffs=tariffs
    )
    sessions = Sessions(clock, is_https=is_https)
    app = Authentication(page_routes(), ViewerTokens(api, clock), sessions, pages.page_of_viewer)
    return RequestGuard(app, hosts, "https" if is_https else "http")
