"""A watch that ended for good is noticed although its thread lives."""

from __future__ import annotations

from yarl import URL

from wattloop_operator.controller.open_watches import MAX_CLOSED_SECONDS, OpenWatches

LIST = URL("https://server/api/v1/pods?limit=20")
WATCH = URL("https://server/api/v1/pods?watch=true")


def test_only_a_watch_that_stays_closed_is_a_problem() -> None:
    now = 0.0
    watches = OpenWatches(lambda: now)
    watches.begin(URL("https://server/apis"))
    watches.end(URL("https://server/apis"))
    watches.begin(WATCH)
    now += 1000.0
    assert watches.problem() == "", "a stream is open, or a request waits"
    watches.end(WATCH)
    now += MAX_CLOSED_SECONDS
    assert watches.problem() == "", "it may be requested again"
    watches.begin(LIST)
    now += 100.0
    assert watches.problem() == "", "kopf lists before it watches again"
    watches.end(LIST)
    now += MAX_CLOSED_SECONDS + 1.0
    assert watches.problem() == "the watch of /api/v1/pods ended 7 s ago"


def test_a_watch_that_is_requested_in_vain_is_unserved_until_the_server_responds() -> None:
    now = 0.0
    watches = OpenWatches(lambda: now)
    for _ in range(4):
        watches.begin(WATCH)
        watches.end(WATCH)
        now += 2.0
    assert watches.problem() == "", "kopf requests it again"
    assert watches.unserved() == "the API server has not served the watch of /api/v1/pods for 8 s"
    watches.begin(LIST)
    assert watches.unserved()
    watches.serve(LIST)
    assert watches.unserved() == ""
    watches.end(LIST)
    now += MAX_CLOSED_SECONDS + 1.0
    watches.begin(WATCH)
    assert watches.unserved() == "the API server has not served the watch of /api/v1/pods for 7 s"
    watches.serve(WATCH)
    now += 1000.0
    assert watches.unserved() == ""
