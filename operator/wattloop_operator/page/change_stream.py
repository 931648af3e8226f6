"""Server-sent events that say that something has changed, so that an open page reads itself again.

A stream ends after `STREAM_SECONDS`, since the server gives no response more time, and the browser opens the next one.
It ends before if its viewer is not signed in any more, or if another viewer without a stream needs its place.
"""

import asyncio
import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from wattloop.errors import WattloopError
from wattloop.printable import printable
from wattloop_operator.page.job_source import JobSource

STREAM_SECONDS = 40.0
INTERVAL_SECONDS = 1.0
MAX_STREAMS = 48
RETRY_MILLISECONDS = 500
# Of a browser that was told why it gets no stream.
LATE_RETRY_MILLISECONDS = 10_000
VERSION, FAILURE, END = "version", "failure", "end"
FULL = "too many pages are open, so this one does not follow changes; reload it by hand"
STATE = "viewer_page"
NOTHING_TO_SEE = "not live: there is no job yet that you may see; the page asks again"


@dataclass(eq=False)
class OpenStream:
    """A stream that is counted.

    Attributes:
        owner: Who shares the places of the server; see `Viewer.owner`.
        user: Its user.
        displaced: Set when another stream takes its place.
    """

    owner: str = ""
    user: str = ""
    displaced: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self, seconds: float) -> bool:
        """Wait so long, or until another stream takes its place; returns whether one has."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.displaced.wait(), seconds)
        return self.displaced.is_set()


class OpenStreams:
    """The open streams of a server, at most `MAX_STREAMS`.

    A viewer may have all of them while nobody else needs one. Then each owner has an equal share, and within it each
    user. Not thread-safe, except `end`: the server's event loop alone uses it.
    """

    def __init__(self) -> None:
        # The oldest first.
        self._open: dict[OpenStream, None] = {}
        self._ended = threading.Event()

    @contextlib.contextmanager
    def counted(self, stream: OpenStream) -> Iterator[bool]:
        """Count a stream, which may take the place of another one; gives whether there is a place for it."""
        has_place = len(self._open) < MAX_STREAMS or self._displace(stream)
        if has_place:
            self._open[stream] = None
        try:
            yield has_place
        finally:
            self._open.pop(stream, None)

    def _displace(self, stream: OpenStream) -> bool:
        """End the oldest stream of whoever has at least two more; returns whether there is one."""
        by_owner = Counter(each.owner for each in self._open)
        by_user = Counter(each.user for each in self._open if each.owner == stream.owner)
        largest = max(by_owner, key=by_owner.__getitem__)
        if by_owner[largest] >= by_owner[stream.owner] + 2:
            by_user = Counter(each.user for each in self._open if each.owner == largest)
            owner, user = largest, max(by_user, key=by_user.__getitem__)
        else:
            owner, user = stream.owner, max(by_user, key=by_user.__getitem__, default="")
            if by_user[user] < by_user[stream.user] + 2:
                return False
        oldest = next(each for each in self._open if (each.owner, each.user) == (owner, user))
        del self._open[oldest]
        oldest.displaced.set()
        return True

    def end(self) -> None:
        """End all streams, from any thread."""
        self._ended.set()

    @property
    def have_ended(self) -> bool:
        """Whether the streams end."""
        return self._ended.is_set()


class ChangeStreams:
    """The streams of one source of jobs, which all read the same version.

    Args:
        source: The jobs.
        server: The open streams of the server.
        interval_seconds: How often the version is read at most.
        clock: Monotonic seconds.
        owner: Who shares the places of the server with others; a user may have several sources, one for each of his
            tokens.
        user: Who opens the streams.
    """

    def __init__(
        self,
        source: JobSource,
        server: OpenStreams,
        interval_seconds: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        *,
        owner: str = "",
        user: str = "",
    ) -> None:
        self._source = source
        self._server = server
        self._owner = owner
        self._user = user
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._known: tuple[float, str, str] | None = None

    async def events(self, ending: Callable[[], str]) -> AsyncGenerator[str]:
        """The events of one stream: the version now and each later one, or why there is none.

        Args:
            ending: Says why the viewer's streams end now; empty if they do not.
        """
        latest = await run_in_threadpool(self._latest, ending)
        stream = OpenStream(self._owner, self._user)
        if latest[0] == END:
            yield _last(latest[1])
            return
        # What follows runs in one step of the event loop up to the first event, so that each stream is counted.
        with self._server.counted(stream) as has_place:
            if not has_place:
                yield _last(FULL)
                return
            yield f"retry: {RETRY_MILLISECONDS}\n\n{_event(*latest)}"
            until, sent = self._clock() + STREAM_SECONDS, latest
            while not self._server.have_ended:
                if await stream.wait(self._interval_seconds):
                    yield _last(FULL)
                    return
                if self._clock() >= until:
                    return
                latest = await run_in_threadpool(self._latest, ending)
                if latest[0] == END:
                    yield _last(latest[1])
                    return
                if latest != sent:
                    yield _event(*latest)
                    sent = latest

    def _latest(self, ending: Callable[[], str]) -> tuple[str, str]:
        """Name and text of the latest event: the version, why it cannot be read, or why the stream ends."""
        if reason := ending():
            return END, reason
        with self._lock:
            now = self._clock()
            if self._known is None or now - self._known[0] >= self._interval_seconds:
                try:
                    found = (VERSION, self._source.version()) if self._source.sees_any() else (END, NOTHING_TO_SEE)
                except WattloopError as error:
                    found = FAILURE, printable(str(error))
                self._known = now, *found
            return self._known[1:]


@dataclass(frozen=True)
class ViewerPage:
    """What a viewer sees.

    Attributes:
        source: The jobs.
        streams: Tells the viewer's open pages of changes.
        ending: Says why the viewer may see it no longer, as his token has expired; empty while he may.
    """

    source: JobSource
    streams: ChangeStreams
    ending: Callable[[], str] = lambda: ""


def with_page(scope: Scope, page: ViewerPage) -> Scope:
    """The scope of a request of a viewer."""
    return {**scope, "state": {**scope.get("state", {}), STATE: page}}


def viewer_page_of(request: HTTPConnection) -> ViewerPage:
    """What the viewer of a request sees."""
    page = request.scope["state"][STATE]
    assert isinstance(page, ViewerPage)
    return page


class EventStream(StreamingResponse):
    """The response with the events of a stream, which is closed with it."""

    def __init__(self, events: AsyncGenerator[str]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        async with contextlib.aclosing(self._events):
            await super().__call__(scope, receive, send)


async def told(text: str) -> AsyncGenerator[str]:
    """The events of a stream that only says why it is none: of a status, a browser would not read the text."""
    yield _last(text)


def _last(text: str) -> str:
    return f"retry: {LATE_RETRY_MILLISECONDS}\n\n{_event(FAILURE, text)}"


def _event(name: str, text: str) -> str:
    return f"event: {name}\ndata: {json.dumps(text)}\n\n"
