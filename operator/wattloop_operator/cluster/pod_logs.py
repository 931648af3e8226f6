"""The log of a container, as a stream of lines with their times.

The API server forwards the kubelet's log. A stream ends when the container has ended, or with its
connection; a further stream continues at the time of the last line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import urllib3
from kubernetes.client import ApiClient, ApiException

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import PODS, NotFoundError, RejectedError
from wattloop_operator.domain.training_output import MAX_LINE_BYTES

CONNECT_SECONDS = 10.0
# A training may print nothing for long. Then the stream is opened again.
SILENCE_SECONDS = 300.0
CHUNK_BYTES = 64 * 1024
MAX_ERROR_BYTES = 4096
NANOSECONDS = 1_000_000_000
TIMESTAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")


@dataclass(frozen=True)
class ContainerLog:
    """A container whose log is read.

    Attributes:
        namespace: Namespace of its pod.
        pod: Name of its pod.
        container: Its name.
    """

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True)
class LogLine:
    """A line of a log.

    Attributes:
        time_nanoseconds: When it was written, since the epoch.
        text: Its text, without the line feed.
    """

    time_nanoseconds: int
    text: bytes


OpenLog = Callable[[ContainerLog, int, bool], Iterator[bytes]]
"""Opens a log, from a time in nanoseconds on, and follows it or not; returns its chunks.

Raises NotFoundError if there is no pod or no log, RejectedError if the operator may not read it, and
OperationError, also while chunks are read, if the connection fails."""


class ClusterLogs:
    """Reads logs through the API server. Thread-safe.

    Args:
        client: The official client, with its credentials.
    """

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    def open(self, log: ContainerLog, since_nanoseconds: int, follow: bool) -> Iterator[bytes]:
        """See `OpenLog`."""
        query = [("container", log.container), ("timestamps", "true"), ("follow", str(follow).lower())]
        if since_nanoseconds:
            # Whole seconds: the kubelet sends some lines again, which the reader skips.
            since = datetime.fromtimestamp(since_nanoseconds // NANOSECONDS, UTC)
            query.append(("sinceTime", since.strftime("%Y-%m-%dT%H:%M:%SZ")))
        method, url, headers, body, _ = self._client.param_serialize(
            method="GET",
            resource_path=PODS.path(log.namespace, log.pod, "log"),
            query_params=query,
            header_params={"Accept": "*/*"},
            auth_settings=["BearerToken"],
        )
        try:
            timeout = (CONNECT_SECONDS, SILENCE_SECONDS)
            opened = self._client.call_api(method, url, headers, body, _request_timeout=timeout)
            response: urllib3.BaseHTTPResponse = opened.response
            if response.status != 200:
                raise _error(response.status, response.read(MAX_ERROR_BYTES))
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            raise OperationError(f"the log of {log.namespace}/{log.pod} cannot be read: {error}") from error
        return _chunks(log, response)


def _chunks(log: ContainerLog, response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    try:
        while data := response.read1(CHUNK_BYTES):
            yield data
    except urllib3.exceptions.HTTPError as error:
        raise OperationError(f"the log of {log.namespace}/{log.pod} is interrupted: {error}") from error
    finally:
        response.close()


def _error(status: int, body: bytes) -> Exception:
    text = body.decode("utf-8", "replace")
    if status in (400, 404):
        # 400: the container has not started yet, or its log is gone.
        return NotFoundError(text)
    return RejectedError(text) if status == 403 else OperationError(f"{status}: {text}")


def lines_of(chunks: Iterator[bytes]) -> Iterator[LogLine]:
    r"""The lines of a log in the kubelet's form, bounded in length; a line without a time is skipped.

    Example:
        >>> list(lines_of(iter([b"1970-01-01T00:00:01.5Z a", b"=1\nno time\n1970-01-01T00:00:02Z b=2"])))
        [LogLine(time_nanoseconds=1500000000, text=b'a=1'), LogLine(time_nanoseconds=2000000000, text=b'b=2')]
    """
    part = b""
    for chunk in chunks:
        *complete, last = chunk.split(b"\n")
        for piece in complete:
            yield from _line(part + piece)
            part = b""
        # The rest of a long line is dropped as it comes.
        part = (part + last)[: MAX_LINE_BYTES + CHUNK_BYTES]
    yield from _line(part)


def _line(line: bytes) -> Iterator[LogLine]:
    match = TIMESTAMP.match(line)
    if match is None:
        return
    try:
        seconds = round(datetime.fromisoformat((match[1] + match[3]).decode("ascii")).timestamp())
    except (ValueError, OverflowError):
        # No date of the calendar.
        return
    fraction = int((match[2] or b"0").ljust(9, b"0"))
    yield LogLine(seconds * NANOSECONDS + fraction, line[match.end() :])
