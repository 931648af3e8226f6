"""The page of a cluster for several viewers: each one sees the namespaces that he may list."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from cachetools import LRUCache

from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.auth.viewers import MAX_VIEWERS, Viewer, ViewerRights, ViewerTokens
from wattloop_operator.domain.tariff import NO_TARIFFS, Tariffs
from wattloop_operator.page.authentication import Authentication, Sessions
from wattloop_operator.page.change_stream import INTERVAL_SECONDS, ChangeStreams, OpenStreams, ViewerPage
from wattloop_operator.page.cluster_jobs import ViewerJobs
from wattloop_operator.page.cluster_reader import ClusterReader
from wattloop_operator.page.page_app import page_routes
from wattloop_operator.page.request_guard import RequestGuard

REMEDY = (
    "give this account the right to list both kinds there, as the chart does for each of operator.namespaces, or take "
    "the namespace out of operator.namespaces (--namespaces)"
)


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

    All viewers share one reading of the cluster.

    Args:
        api: The API server, with the rights to list both kinds and to review rights.
        streams: The open streams of the server.
        hosts: Names of the server; requests to others are refused.
        is_https: Whether browsers reach the server by HTTPS alone.
        namespaces: The namespaces to read; none: all.
        clock: Monotonic seconds.
        namespace_bytes: Bytes of memory that the objects of a namespace may take.
        tariffs: Price and carbon intensity of electricity by namespace.
    """
    reader = ClusterReader(api, "this cluster", namespaces, clock, remedy=REMEDY, namespace_bytes=namespace_bytes)
    rights, lock = ViewerRights(api, clock), threading.Lock()
    pages: LRUCache[Viewer, ViewerPage] = LRUCache(MAX_VIEWERS)

    def page_of_viewer(viewer: Viewer) -> ViewerPage:
        with lock:
            if viewer not in pages:
                source = ViewerJobs(reader, rights, viewer, clock, tariffs)
                own = ChangeStreams(source, streams, INTERVAL_SECONDS, clock, owner=viewer.owner, user=viewer.name)
                pages[viewer] = ViewerPage(source, own)
            return pages[viewer]

    sessions = Sessions(clock, is_https=is_https)
    app = Authentication(page_routes(), ViewerTokens(api, clock), sessions, page_of_viewer)
    return RequestGuard(app, hosts, "https" if is_https else "http")
