"""Viewers of a cluster's page who take what all share, beside one who only looks at the page."""

from __future__ import annotations

import contextlib
import socket
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from typing import Self
from urllib.parse import urlsplit

import httpx
import pytest

from support.databases.many_jobs import LONGEST, NAMESPACE
from support.live_page import serving_viewers
from support.reviewed_cluster import OTHERS, ReviewedCluster
from wattloop_operator.page.change_stream import FULL, MAX_STREAMS, NOTHING_TO_SEE

VERSION = "version"
ACCOUNT = "system:serviceaccount"


class Attacked:
    """A page with its cluster, the streams that hostile viewers hold, and the requests of the victim."""

    def __init__(self, url: str, cluster: ReviewedCluster) -> None:
        self._url = url
        self._stack = contextlib.ExitStack()
        self.cluster = cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def account(self, name: str, *namespaces: str) -> str:
        """The token of a user who may list these namespaces."""
        self.cluster.users[name] = name
        self.cluster.rights[name] = set(namespaces)
        return name

    def open_stream(self, token: str) -> socket.socket:
        """Ask for a stream, without a wait for what comes."""
        address = urlsplit(self._url)
        connection = self._stack.enter_context(socket.create_connection((address.hostname, address.port), timeout=60))
        connection.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        return connection

    def median_ms(self, token: str) -> float:
        """How long the victim waits for the list of jobs."""
        took = []
        with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
            for _ in range(20):
                begun = time.perf_counter()
                assert [each["name"] for each in client.get(f"{self._url}/api/jobs").json()["jobs"]] == [LONGEST]
                took.append(1e3 * (time.perf_counter() - begun))
        return statistics.median(took)


def event_of(stream: socket.socket) -> str:
    """The next event of a stream: its name if it is a version, or why there is none; empty at its end."""
    received = b""
    while b"\ndata: " not in received or not received.endswith(b"\n\n\r\n"):
        chunk = stream.recv(4096)
        if not chunk or b"0\r\n\r\n" in chunk[-5:]:
            return text_of(received + chunk)
        received += chunk
    return text_of(received)


def text_of(received: bytes) -> str:
    text = received.decode()
    return VERSION if f"event: {VERSION}" in text else text.partition('data: "')[2].partition('"')[0]


@pytest.fixture
def page() -> Iterator[Attacked]:
    cluster = ReviewedCluster()
    with serving_viewers(cluster) as url, Attacked(url, cluster) as attacked:
        yield attacked


def test_streams_are_counted_as_they_are_opened(page: Attacked) -> None:
    opened = [page.open_stream("all") for _ in range(MAX_STREAMS + 20)]
    assert Counter(map(event_of, opened)) == {VERSION: MAX_STREAMS, FULL: 20}


def test_a_viewer_without_rights_gets_no_stream_and_one_with_many_loses_one_for_another(page: Attacked) -> None:
    victim = page.account("victim", NAMESPACE)
    before, begun = page.median_ms(victim), time.perf_counter()
    assert event_of(page.open_stream(victim)) == VERSION
    alone = 1e3 * (time.perf_counter() - begun)
    without = [page.account(f"{ACCOUNT}:nobody:{each}") for each in range(4)]
    refused = [page.open_stream(each) for each in without for _ in range(MAX_STREAMS // 4)]
    assert Counter(map(event_of, refused)) == {NOTHING_TO_SEE: MAX_STREAMS}
    # Whoever manages a namespace makes accounts in it, and gives them its rights.
    many = [page.account(f"{ACCOUNT}:{OTHERS}:{each}", OTHERS) for each in range(30)]
    held = [page.open_stream(each) for _ in range(2) for each in many]
    taken = Counter(map(event_of, held))
    during, begun = page.median_ms(victim), time.perf_counter()
    opened = [page.open_stream(victim) for _ in range(3)]
    assert [event_of(each) for each in opened] == [VERSION] * 3
    beside = 1e3 * (time.perf_counter() - begun)
    print(f"\njobs {before:.1f} ms, during {during:.1f} ms; a stream {alone:.1f} ms, three during {beside:.1f} ms")
    assert taken == {VERSION: MAX_STREAMS - 1, FULL: 60 - MAX_STREAMS + 1}, "the victim keeps the stream that it had"
