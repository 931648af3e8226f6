"""Viewers of a cluster's page who take what all share, beside one who only looks at the page."""

import contextlib
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from support.control_plane.signed_tokens import signed_token
from support.databases.many_jobs import LONGEST, NAMESPACE
from support.live_page import serving_viewers
from support.reviewed_cluster import OTHERS, ReviewedCluster
from wattloop_operator.cluster.api import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from wattloop_operator.cluster.auth.viewers import REFUSALS, RIGHTS_SECONDS, UNKNOWN_TOKENS_OF_ADDRESS
from wattloop_operator.page.change_stream import FULL, MAX_STREAMS, NOTHING_TO_SEE

VERSION = "version"
NAMESPACES = 300


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

    def open_stream(self, token: str) -> socket.socket:
        """Ask for a stream, without a wait for what comes."""
        address = urlsplit(self._url)
        connection = self._stack.enter_context(socket.create_connection((address.hostname, address.port), timeout=60))
        connection.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        return connection

    def sign_in(self, token: str) -> int:
        """The status of the answer to a token in the form."""
        return httpx.post(f"{self._url}/sign-in", data={"token": token}, timeout=60).status_code

    def get(self, path: str, token: str) -> Any:
        """What the page answers as JSON."""
        answer = httpx.get(f"{self._url}{path}", headers={"Authorization": f"Bearer {token}"}, timeout=60)
        return answer.raise_for_status().json()

    @contextlib.contextmanager
    def asking(self, tokens: Sequence[str]) -> Iterator[None]:
        """Ask for the list of jobs without a pause, for each of the tokens at a time."""
        ended = threading.Event()

        def ask(token: str) -> None:
            with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
                while not ended.is_set():
                    assert client.get(f"{self._url}/api/jobs").json()["jobs"] == []

        with ThreadPoolExecutor(len(tokens)) as threads:
            asked = [threads.submit(ask, each) for each in tokens]
            try:
                yield
            finally:
                ended.set()
            for each in asked:
                each.result()

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
    victim = page.cluster.account("home", "victim", NAMESPACE)
    before, begun = page.median_ms(victim), time.perf_counter()
    kept = page.open_stream(victim)
    assert event_of(kept) == VERSION
    alone = 1e3 * (time.perf_counter() - begun)
    without = [page.cluster.account("nobody", str(each)) for each in range(4)]
    refused = [page.open_stream(each) for each in without for _ in range(MAX_STREAMS // 4)]
    assert Counter(map(event_of, refused)) == {NOTHING_TO_SEE: MAX_STREAMS}
    # Whoever manages a namespace makes accounts in it, and gives them its rights.
    many = [page.cluster.account(OTHERS, str(each), OTHERS) for each in range(30)]
    held = [page.open_stream(each) for _ in range(2) for each in many]
    taken = Counter(map(event_of, held))
    during, begun = page.median_ms(victim), time.perf_counter()
    opened = [page.open_stream(victim) for _ in range(3)]
    assert [event_of(each) for each in opened] == [VERSION] * 3
    beside = 1e3 * (time.perf_counter() - begun)
    print(f"\njobs {before:.1f} ms, during {during:.1f} ms; a stream {alone:.1f} ms, three during {beside:.1f} ms")
    # One of two that an account opened may have given way to the first of another account.
    assert taken[VERSION] >= MAX_STREAMS - 1
    kept.setblocking(False)
    with pytest.raises(BlockingIOError):
        kept.recv(1)


def test_viewers_without_rights_cost_few_reviews_in_a_cluster_of_many_namespaces(page: Attacked) -> None:
    cluster, path = page.cluster, SUBJECT_ACCESS_REVIEWS.path()
    cluster.add_namespaces(NAMESPACES)
    cluster.review_seconds = 0.002
    victim = cluster.account(NAMESPACE, "victim", NAMESPACE)
    hostile = [cluster.account("nobody", str(each)) for each in range(8)]
    before, asked = page.median_ms(victim), cluster.reviews[path]
    begun = time.monotonic()
    with page.asking(hostile):
        during = page.median_ms(victim)
    seconds, reviews = time.monotonic() - begun, cluster.reviews[path] - asked
    print(f"\njobs {before:.1f} ms, during {during:.1f} ms; {reviews} reviews in {seconds:.1f} s")
    # Each time that they expire: of each account whether it may list all namespaces, and two of the victim's own one.
    rights = (len(hostile) + 3) * (1 + seconds // RIGHTS_SECONDS)
    # Of all of them together the rest, and one that runs in each.
    assert reviews <= rights + REFUSALS.burst + REFUSALS.per_second * seconds + len(hostile)


def test_tokens_that_somebody_made_up_keep_no_viewer_behind_the_same_address_out(page: Attacked) -> None:
    cluster, path = page.cluster, TOKEN_REVIEWS.path()
    begun = time.perf_counter()
    assert page.sign_in(cluster.account("home", "first", NAMESPACE)) == 303
    before, burst = 1e3 * (time.perf_counter() - begun), int(UNKNOWN_TOKENS_OF_ADDRESS.burst)
    foreign = generate_private_key(SECP256R1())
    claims = {"sub": "system:serviceaccount:home:victim"}
    made_up = {
        "by another key": [signed_token(claims | {"number": each}, foreign) for each in range(2 * burst)],
        "of no key": [signed_token(claims | {"number": each}, foreign, "unknown") for each in range(2 * burst)],
        "any text": [f"{each}.{each}.{each}" for each in range(burst)],
    }
    answers = {name: Counter(map(page.sign_in, tokens)) for name, tokens in made_up.items()}
    begun = time.perf_counter()
    assert page.sign_in(cluster.account("home", "victim", NAMESPACE)) == 303
    print(f"\na sign-in {before:.1f} ms, after the flood {1e3 * (time.perf_counter() - begun):.1f} ms; {answers}")
    assert answers["by another key"] == {401: 2 * burst}, "they are known to be forged, and take no review"
    assert answers["of no key"][429] > 0
    assert cluster.reviews[path] < 3 * burst


def test_objects_of_another_namespace_that_cannot_be_read_change_nothing_for_a_viewer(page: Attacked) -> None:
    cluster = page.cluster
    cluster.add_namespaces(NAMESPACES)
    victim, neighbour = cluster.account(NAMESPACE, "victim", NAMESPACE), cluster.account("root", "neighbour", "")
    figures, before = page.get("/api/jobs", victim), page.median_ms(victim)
    for each in cluster.jobs[1:]:
        each["metadata"]["resourceVersion"] = "2"
        each["status"] = {"laterField": 1}
    cluster.recurrences[1]["spec"] = None
    cluster.recurrences[1]["metadata"]["resourceVersion"] = "2"
    while len(page.get("/api/jobs", neighbour)["missing"]) == 0:
        time.sleep(0.1)
    during = page.median_ms(victim)
    print(f"\njobs {before:.1f} ms, beside {NAMESPACES} that cannot be read {during:.1f} ms")
    assert page.get("/api/jobs", victim) == figures
