"""The HTTP session of kopf's watches: it takes the objects, with bounds, and knows which watches are open.

The objects of lists and events go to the dispatcher as they arrive. kopf receives the pages without them, and bookmarks
instead of events. It would start a worker for each object, and let all workers wait for the last list: each new one
wakes those before it, which takes minutes with some thousands of objects.

kopf documents sessions of its users' own; aiohttp's sessions accept a class of responses and
callbacks for requests. kopf ends a watch for good at an error that it does not foresee, and its thread lives on. While
the API server is away, kopf requests each watch again and again, and none of them has a stream.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, ClassVar

import aiohttp
import kopf
from yarl import URL

from wattloop_operator.cluster.bounded_json import UnreadableError, parse
from wattloop_operator.cluster.informer.event_dispatcher import EventDispatcher
from wattloop_operator.cluster.informer.object_cache import WatchedKind
from wattloop_operator.cluster.informer.stored_parts import CHANGES, read_event, read_list

logger = logging.getLogger(__name__)

# The API server stores no object of this size.
MAX_LINE_BYTES = 8 * 1024 * 1024


def watch_session(login: Mapping[str, Any], watches: OpenWatches, dispatcher: EventDispatcher) -> kopf.AiohttpSession:
    """A session of the cluster's user; call it in the event loop of kopf.

    Args:
        login: The fields of a `kopf.ConnectionInfo`.
        watches: Records each request.
        dispatcher: Receives the objects.
    """
    info = kopf.ConnectionInfo(**login)

    class WatchResponse(_BoundedResponse):
        open_watches = watches
        receiver = dispatcher
        kinds: ClassVar = {kind.resource.plural: kind for kind in dispatcher.kinds}

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(_told(watches.begin))
    trace.on_request_exception.append(_told(watches.end))
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        response_class=WatchResponse,
        trace_configs=[trace],
    )
    return kopf.AiohttpSession(server=info.server, aiohttp_session=session)


def _told(watched: Any) -> Any:
    async def call(_: aiohttp.ClientSession, __: SimpleNamespace, parameters: Any) -> None:
        watched(parameters.url)

    return call


class _BoundedResponse(aiohttp.ClientResponse):
    """A response whose objects the dispatcher receives, and kopf does not."""

    open_watches: OpenWatches
    receiver: EventDispatcher
    kinds: ClassVar[dict[str, WatchedKind]]

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Read the headers; the objects of a watch go to the dispatcher from then on.

        Raises:
            aiohttp.ClientPayloadError: The server no longer has the version that the rest of a list is of.
        """
        started = await super().start(connection)
        if self.status == HTTPStatus.GONE:
            # kopf lists again after this error, and ends the watch for good after that status.
            raise aiohttp.ClientPayloadError(f"{self.url.path}: the version of the list is gone")
        if self.status < 400:
            self.open_watches.serve(self.url)
        kind = self._kind
        if kind is not None and self.url.query.get("watch") == "true" and self.status < 400:
            self.content = HandledLines(self.content, self.url, kind, self.receiver)  # type: ignore[assignment]
        return started

    async def json(self, **_: Any) -> Any:
        """The body, parsed with bounds; a list without its items, which the dispatcher has received.

        Raises:
            json.JSONDecodeError: It is not JSON, or is too large.
        """
        data = await self.read()
        kind = self._kind
        try:
            if kind is None:
                return parse(data)
            found = read_list(data, kind.part, lambda item: self.receiver.on_read(kind, item))
        except UnreadableError as error:
            raise json.JSONDecodeError(str(error), data[:200].decode("utf-8", "replace"), 0) from error
        if isinstance(found, dict) and "items" in found and not (found.get("metadata") or {}).get("continue"):
            self.receiver.on_listed(self.url.path)
        return found

    @property
    def _kind(self) -> WatchedKind | None:
        return self.kinds.get(self.url.name)

    def close(self) -> None:
        """Close the connection."""
        self.open_watches.end(self.url)
        super().close()

    def release(self) -> Any:
        """Return the connection to the pool."""
        self.open_watches.end(self.url)
        return super().release()


class HandledLines:
    """The stream of a watch: the dispatcher gets its objects, and kopf a bookmark for those of each chunk."""

    def __init__(self, stream: aiohttp.StreamReader, url: URL, kind: WatchedKind, receiver: EventDispatcher) -> None:
        self._stream = stream
        self._url = url
        self._kind = kind
        self._receiver = receiver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """The lines for kopf, each with its line break."""
        pending = bytearray()
        async for chunk in self._stream.iter_chunked(size):
            pending += chunk
            if b"\n" not in chunk and len(pending) <= MAX_LINE_BYTES:
                continue
            *lines, rest = bytes(pending).split(b"\n")
            pending = bytearray(rest if len(rest) <= MAX_LINE_BYTES else b"")
            # kopf needs the newest version alone, from which it watches when the connection is renewed.
            last = b""
            for line in filter(None, lines):
                last = self._handled(line) or last
                if last == _EXPIRED:
                    break
            if last:
                yield last

    def _handled(self, line: bytes) -> bytes:
        """Pass the object of an event to the dispatcher; returns the line for kopf, or nothing."""
        try:
            event_type, found = read_event(line, self._kind.part)
            if event_type in CHANGES:
                self._receiver.on_event(self._kind, event_type, found)
        except UnreadableError as error:
            logger.warning("%s: an event of %d bytes is passed over: %s", self._url.path, len(line), error)
            return b""
        except Exception:  # the watch goes on, and the next resync fetches the object
            logger.exception("%s: unexpected failure at an event of %d bytes", self._url.path, len(line))
            return b""
        if event_type == "ERROR":
            logger.info("a watch has ended by an error of the API server, and its objects are listed again: %s", found)
            return _EXPIRED
        metadata = found.get("metadata") if isinstance(found, dict) else None
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        return _bookmark(version) if version else b""


# kopf lists again after an expired version. It ends the watch for good after any other code.
_EXPIRED = b'{"type": "ERROR", "object": {"code": 410}}\n'


def _bookmark(version: str) -> bytes:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}
    return json.dumps(bookmark).encode() + b"\n"


# kopf waits at most `RETRY_SECONDS` between the requests of a watch.
RETRY_SECONDS = 2.0
MAX_CLOSED_SECONDS = 6.0


class OpenWatches:
    """Remembers the requests of each watch, by its path. Thread-safe.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # Since when a watch is not requested, and since when it has no response; None: it is, or has.
        self._closed_at: dict[str, float | None] = {}
        self._unserved_at: dict[str, float | None] = {}

    def begin(self, url: URL) -> None:
        """Record that a watch, or the list before it, is requested; kopf sends one request of a path at a time."""
        with self._lock:
            if url.path in self._closed_at or url.query.get("watch"):
                self._closed_at[url.path] = None
                self._unserved_at.setdefault(url.path, self._clock())

    def serve(self, url: URL) -> None:
        """Record that the API server responds without an error."""
        with self._lock:
            if url.path in self._closed_at:
                self._unserved_at[url.path] = None

    def end(self, url: URL) -> None:
        """Record that a request failed, or that its response has ended."""
        with self._lock:
            if url.path in self._closed_at:
                self._closed_at[url.path] = self._clock()
                if self._unserved_at[url.path] is None:
                    self._unserved_at[url.path] = self._clock()

    def problem(self) -> str:
        """Which watches kopf does not request for longer than it waits; empty if there is none."""
        return self._listed(self._closed_at, "the watch of {path} ended {age:.0f} s ago")

    def unserved(self) -> str:
        """Which watches the API server does not serve; empty if it serves all."""
        return self._listed(self._unserved_at, "the API server has not served the watch of {path} for {age:.0f} s")

    def _listed(self, since: Mapping[str, float | None], text: str) -> str:
        now = self._clock()
        with self._lock:
            ages = {path: now - at for path, at in since.items() if at is not None and now - at > MAX_CLOSED_SECONDS}
        return ", ".join(text.format(path=path, age=age) for path, age in sorted(ages.items()))
