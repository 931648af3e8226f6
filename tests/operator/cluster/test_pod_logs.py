"""Following the log of a container: each evaluation counts once, in bounded memory and at a bounded rate."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.reporting.followed_logs import VirtualFlow, follower, interrupted
from support.test_sets.parameters import exhaustive_after
from wattloop.errors import OperationError
from wattloop_operator.cluster.api import NotFoundError, RejectedError
from wattloop_operator.cluster.pod_logs import BURST_BYTES, MAX_BYTES_PER_SECOND, MIN_LINE_BYTES, NANOSECONDS, lines_of
from wattloop_operator.domain.training_output import MAX_LINE_BYTES
from wattloop_operator.reconcile.attempt.report_effect import OutputReport

EPOCHS = [f"1970-01-01T00:00:0{second}.25Z epoch={second} accuracy=0.{second}\n".encode() for second in range(1, 6)]


def test_the_position_of_an_evaluation_is_the_time_of_its_line() -> None:
    seen: list[OutputReport] = []
    reader = follower(lambda _: iter([EPOCHS[0] + b"1970-01-01T00:00:01.3Z loss=1\n", EPOCHS[1]]), seen)
    reader.run()
    assert seen == [
        OutputReport(1_250_000_000, 0.1, 1.0, process="uid/0"),
        OutputReport(2_250_000_000, 0.2, 2.0, process="uid/0"),
    ]
    assert reader.complete


def test_the_only_value_of_a_log_without_epochs_counts_once_the_container_has_ended_well() -> None:
    seen: list[OutputReport] = []
    for succeeded in (False, True):
        log = iter([b"1970-01-01T00:00:01Z accuracy=0.95\n"])
        reader = follower(lambda _, log=log: log, seen, follow=False, succeeded=succeeded)  # type: ignore[misc]
        reader.run()
        assert [report.metric for report in seen] == ([0.95] if succeeded else [])


def test_a_log_that_is_read_on_from_a_counted_evaluation_holds_none_back() -> None:
    seen: list[OutputReport] = []
    follower(lambda _: iter([b"1970-01-01T00:00:02Z accuracy=0.95\n"]), seen, 1_000_000_000, has_counted=True).run()
    assert [report.metric for report in seen] == [0.95]


@pytest.mark.parametrize("is_new_leader", [False, True])
def test_a_log_that_is_read_on_is_understood_as_before(is_new_leader: bool) -> None:
    """Epochs count from 0, and a further rank's equal line of the epoch counts once."""
    log = [f"1970-01-01T00:00:0{i + 1}Z epoch={i // 2} accuracy=0.{i // 2}\n".encode() for i in range(6)]
    seen: list[OutputReport] = []
    first = follower(lambda _: interrupted(*log[:3]), seen)
    first.run()
    if is_new_leader:
        follower(lambda _: iter(log), seen, first.position, has_counted=True).run()
    else:
        follower(lambda _: iter(log[2:]), seen, before=first).run()
    assert [report.epoch for report in seen] == [1, 2, 3]


@given(st.integers(0, sum(map(len, EPOCHS))), st.lists(st.integers(1, 50), max_size=10))
def test_a_log_that_is_interrupted_anywhere_and_read_again_counts_each_evaluation_once(
    cut: int, sizes: list[int]
) -> None:
    log = b"".join(EPOCHS)
    seen: list[OutputReport] = []
    sent, pieces = log[:cut], []
    for size in sizes:
        pieces.append(sent[:size])
        sent = sent[size:]
    first = follower(lambda _: interrupted(*pieces, sent), seen)
    first.run()
    assert not first.complete

    def again(since: int) -> Iterator[bytes]:
        # The API server takes whole seconds.
        return iter([line for line in EPOCHS if int(line[17:19]) >= since // NANOSECONDS])

    second = follower(again, seen, before=first)
    second.run()
    assert second.complete
    assert [report.epoch for report in seen] == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_two_evaluations_in_one_line_have_two_positions() -> None:
    seen: list[OutputReport] = []
    line = b"1970-01-01T00:00:01Z accuracy=0.1\raccuracy=0.2\r\n"
    follower(lambda _: iter([line, b"1970-01-01T00:00:01Z accuracy=0.3\n"]), seen).run()
    assert [(report.position - NANOSECONDS, report.metric) for report in seen] == [(0, 0.1), (1, 0.2), (2, 0.3)]


@pytest.mark.parametrize(
    ("error", "missing", "refusal"),
    [(NotFoundError("no pod"), True, ""), (RejectedError("forbidden"), False, "forbidden")],
)
def test_a_log_that_cannot_be_opened_says_why(error: Exception, missing: bool, refusal: str) -> None:
    def fail(_: int) -> Iterator[bytes]:
        raise error

    reader = follower(fail, [])
    reader.run()
    assert (reader.complete, reader.missing, reader.refusal) == (False, missing, refusal)


def test_a_fast_log_is_read_at_a_bounded_rate() -> None:
    flow = VirtualFlow()
    size = 64 * 1024
    count = 4 * BURST_BYTES // size
    follower(lambda _: itertools.repeat(b"x" * size, count), [], flow=flow).run()
    assert flow.now == pytest.approx((count * size - BURST_BYTES) / MAX_BYTES_PER_SECOND)


@pytest.mark.parametrize("separator", exhaustive_after([b"\r", b"\n1970-01-01T00:00:01Z "]))
def test_a_flood_of_short_lines_is_read_at_a_bounded_number_of_lines_a_second(separator: bytes) -> None:
    flow = VirtualFlow()
    chunk = b"1970-01-01T00:00:01Z " + separator.join([b"x"] * 2000) + b"\n"
    chunks = 2 * BURST_BYTES // (2000 * MIN_LINE_BYTES)
    follower(lambda _: itertools.repeat(chunk, chunks), [], flow=flow).run()
    # What the last chunk costs is waited for before the next one.
    lines = (chunks - 1) * 2000
    assert flow.now >= (lines * MIN_LINE_BYTES - BURST_BYTES) / MAX_BYTES_PER_SECOND
    assert flow.now < 1.2 * chunks * 2000 * MIN_LINE_BYTES / MAX_BYTES_PER_SECOND


@pytest.mark.parametrize(
    "time", ["2026-13-01T00:00:00Z", "2026-01-01T25:00:00Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"]
)
def test_a_line_whose_time_does_not_exist_is_skipped(time: str) -> None:
    seen: list[OutputReport] = []
    lines = f"{time} accuracy=0.1\n1970-01-01T00:00:01Z accuracy=0.2\n".encode()
    follower(lambda _: iter([lines]), seen).run()
    assert [report.metric for report in seen] == [0.2]


def test_an_evaluation_that_cannot_be_stored_now_is_stored_before_the_next_one() -> None:
    stored: list[OutputReport] = []
    failures = iter([True, True, False, False])

    def observe(seen: OutputReport) -> None:
        if next(failures):
            raise OperationError("the API server does not answer")
        stored.append(seen)

    flow = VirtualFlow()
    follower(lambda _: iter(EPOCHS[:2]), [], flow=flow, observe=observe).run()
    assert [report.epoch for report in stored] == [1.0, 2.0]
    assert flow.now == 2.0


def test_a_reader_that_is_stopped_reads_no_further() -> None:
    def observe(_: OutputReport) -> None:
        raise OperationError("this operator ends")

    reader = follower(lambda _: iter(EPOCHS), [], flow=VirtualFlow(stop_after=0.5), observe=observe)
    reader.run()
    assert not reader.complete


def test_a_line_without_end_takes_bounded_memory() -> None:
    seen: list[OutputReport] = []
    log = itertools.chain([EPOCHS[0][:-1]], itertools.repeat(b" " * MAX_LINE_BYTES, 20), [b" accuracy=0.9\n"])
    longest = max(len(text) for _, text in lines_of(log))
    assert longest < 10 * MAX_LINE_BYTES
    follower(lambda _: iter([EPOCHS[0][:-1], b" " * 1_000_000, b" accuracy=0.9\n", EPOCHS[1]]), seen).run()
    assert [report.metric for report in seen] == [0.1, 0.2]
