"""The HTTP session of kopf's watches: it bounds what kopf parses, and knows which watches are open.

kopf documents sessions of its users' own; aiohttp's sessions accept a class of responses and
callbacks for requests.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, ClassVar

import aiohttp
import kopf
from yarl import URL

from wattloop_operator.cluster.bounded_json import UnreadableError
from wattloop_operator.cluster.informer.object_cache import WatchedKind
from wattloop_operator.cluster.informer.stored_parts import own_part
from wattloop_operator.cluster.informer.watch_objects import Part, Wanted, packed_event, packed_response
from wattloop_operator.controller.open_watches import OpenWatches

logger = logging.getLogger(__name__)

# The API server stores no object of this size.
MAX_LINE_BYTES = 8 * 1024 * 1024


def watch_session(
    login: Mapping[str, Any], watches: OpenWatches, kinds: Iterable[WatchedKind] = ()
) -> kopf.AiohttpSession:
    """A session of the cluster's user; call it in the event loop of kopf.

    Args:
        login: The fields of a `kopf.ConnectionInfo`.
        watches: Records each request.
        kinds: The watched kinds. Of their objects kopf receives the stored parts, if their namespaces have room.
    """
    info = kopf.ConnectionInfo(**login)

    class WatchResponse(_PackedResponse):
        open_watches = watches
        filters: ClassVar = {kind.resource.plural: (kind.part, kind.has_room) for kind in kinds}

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


class _PackedResponse(aiohttp.ClientResponse):
    """A response whose objects kopf receives packed."""

    open_watches: OpenWatches
    filters: ClassVar[dict[str, tuple[Part, Wanted]]]

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Read the headers; the lines of a watch are packed from then on.

        Raises:
            aiohttp.ClientPayloadError: The server no longer has the version that the rest of a list is of.
        """
        started = await super().start(connection)
        if self.status == HTTPStatus.GONE:
            # kopf lists again after this error, and ends the watch for good after that status.
            raise aiohttp.ClientPayloadError(f"{self.url.path}: the version of the list is gone")
        if self.status < 400:
            self.open_watches.serve(self.url)
        if self.url.query.get("watch") == "true" and self.status < 400:
            self.content = _PackedLines(self.content, self.url, *self._filter)  # type: ignore[assignment]
        return started

    async def json(self, **_: Any) -> Any:
        """The body, parsed with bounds; the items of a list are packed.

        Raises:
            json.JSONDecodeError: It is not JSON, or is too large.
        """
        data = await self.read()
        try:
            return packed_response(data, *self._filter)
        except UnreadableError as error:
            raise json.JSONDecodeError(str(error), data[:200].decode("utf-8", "replace"), 0) from error

    @property
    def _filter(self) -> tuple[Part, Wanted]:
        return self.filters.get(self.url.name, (own_part, lambda _: True))

    def close(self) -> None:
        """Close the connection."""
        self.open_watches.end(self.url)
        super().close()

    def release(self) -> Any:
        """Return the connection to the pool."""
        self.open_watches.end(self.url)
        return super().release()


class _PackedLines:
    """The stream of a watch: each of its lines has a packed object."""

    def __init__(self, stream: aiohttp.StreamReader, url: URL, part: Part, wanted: Wanted) -> None:
        self._stream = stream
        self._url = url
        self._part = part
        self._wanted = wanted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """The packed lines, each with its line break."""
        pending = bytearray()
        async for chunk in self._stream.iter_chunked(size):
            pending += chunk
            if b"\n" not in chunk and len(pending) <= MAX_LINE_BYTES:
                continue
            *lines, rest = bytes(pending).split(b"\n")
            pending = bytearray(rest if len(rest) <= MAX_LINE_BYTES else b"")
            for line in filter(None, lines):
                try:
                    packed = packed_event(line, self._part, self._wanted)
                except UnreadableError as error:
                    logger.warning("%s: an event of %d bytes is passed over: %s", self._url.path, len(line), error)
                else:
                    if packed:
                        yield packed + b"\n"
