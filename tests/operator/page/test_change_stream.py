"""Who gets a stream of changes, what it tells, and when it ends."""

import contextlib
from collections import Counter
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.live_page import serving_viewers
from support.reviewed_cluster import ReviewedCluster
from wattloop_operator.cluster.auth.viewers import REVIEWED_SECONDS, RIGHTS_SECONDS
from wattloop_operator.page.authentication import SIGNED_OUT
from wattloop_operator.page.change_stream import MAX_STREAMS, NOTHING_TO_SEE, ChangeStreams, OpenStream, OpenStreams
from wattloop_operator.page.cluster_jobs import NOT_FOR_VIEWERS


class Versions:
    """A source of which each reading finds another version."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reads: list[float] = []

    def sees_any(self) -> bool:
        return True

    def version(self) -> str:
        self.reads.append(self.now)
        return str(len(self.reads))


def test_streams_read_the_version_once_an_interval() -> None:
    source: Any = Versions()
    streams = ChangeStreams(source, OpenStreams(), 1.0, lambda: source.now)
    assert [streams._latest(lambda: "") for _ in range(3)] == [("version", "1")] * 3
    source.now = 1.0
    assert streams._latest(lambda: "") == ("version", "2")
    assert source.reads == [0.0, 1.0]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("1234")), min_size=MAX_STREAMS, max_size=150))
def test_of_any_streams_a_bounded_number_is_open_and_nobody_waits_for_one_with_two_more(
    asked: list[tuple[str, str]],
) -> None:
    server, held = OpenStreams(), dict[OpenStream, contextlib.ExitStack]()
    for owner, user in asked:
        opened, stack = OpenStream(owner, f"{owner}{user}"), contextlib.ExitStack()
        has_place = stack.enter_context(server.counted(opened))
        displaced = [each for each in held if each.displaced.is_set()]
        for each in displaced:
            held.pop(each).close()
        before = Counter(each.owner for each in (*held, *displaced))
        if has_place:
            held[opened] = stack
        else:
            stack.close()
            of_owner = Counter(each.user for each in held if each.owner == owner)
            assert all(each <= before[owner] + 1 for each in before.values())
            assert all(each <= of_owner[opened.user] + 1 for each in of_owner.values())
        assert len(displaced) <= has_place
        assert len(held) <= MAX_STREAMS
    assert len(held) == MAX_STREAMS
    for stack in held.values():
        stack.close()
    assert server.counted(OpenStream()).__enter__()


def revoke(cluster: ReviewedCluster) -> None:
    del cluster.users["ours"]


def withdraw(cluster: ReviewedCluster) -> None:
    cluster.rights["ann"].clear()


def change_groups(cluster: ReviewedCluster) -> None:
    cluster.users["ours"] = "root"


@pytest.mark.parametrize(
    ("change", "seconds", "reason"),
    [
        (revoke, REVIEWED_SECONDS, SIGNED_OUT),
        (change_groups, REVIEWED_SECONDS, SIGNED_OUT),
        (withdraw, RIGHTS_SECONDS, NOTHING_TO_SEE),
    ],
)
def test_a_stream_ends_with_the_token_or_the_right_by_which_it_was_opened(
    change: Any, seconds: float, reason: str
) -> None:
    cluster = ReviewedCluster()
    headers = {"Authorization": "Bearer ours"}
    with serving_viewers(cluster, lambda: cluster.now) as url, httpx.Client(headers=headers, timeout=60) as client:
        assert client.get(f"{url}/").status_code == 200
        cluster.now = seconds - 1
        with client.stream("GET", f"{url}/events") as stream:
            lines = (line for line in stream.iter_lines() if line)
            assert [next(lines) for _ in range(2)] == ["retry: 500", "event: version"]
            change(cluster)
            cluster.now = seconds
            said = list(lines)
        assert said[-3:] == ["retry: 10000", "event: failure", f'data: "{reason}"']


def test_a_browser_that_signs_out_ends_its_streams() -> None:
    cluster = ReviewedCluster()
    with serving_viewers(cluster) as url, httpx.Client(base_url=url, timeout=60) as client:
        assert client.post("/sign-in", data={"token": "ours"}).status_code == 303
        with client.stream("GET", "/events") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 500"
            client.post("/sign-out")
            assert list(lines)[-2:] == [f'data: "{SIGNED_OUT}"', ""]


def test_a_stream_tells_that_the_cluster_cannot_be_read_and_goes_on() -> None:
    cluster = ReviewedCluster()
    cluster.refused = {""}
    with (
        serving_viewers(cluster, lambda: cluster.now) as url,
        httpx.stream("GET", f"{url}/events", headers={"Authorization": "Bearer all"}, timeout=60) as stream,
    ):
        lines = (line for line in stream.iter_lines() if line)
        assert [next(lines) for _ in range(3)][2] == f'data: "{NOT_FOR_VIEWERS}"'
        cluster.refused = set()
        cluster.now += 10
        assert next(lines) == "event: version"
