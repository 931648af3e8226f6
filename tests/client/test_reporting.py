"""Reports over real HTTP: whatever the operator does, training goes on, and a later report brings all up to date."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from support.reporting.report_server import Behaviour, ReportServer, answering
from wattloop import reporting
from wattloop.messages import Answer, Report
from wattloop.reporting import MAX_WAIT_SECONDS, ReportChannel

REPORT = Report(sequence=1, epoch=1.0, metric=0.5, evaluations=1)


@dataclass
class VirtualTime:
    """A clock that sleeping moves, and that can do something while it sleeps."""

    now: float = 100.0
    slept: list[float] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


def channel(url: str, time: VirtualTime, token_file: Path | str = "", authorities: str = "") -> ReportChannel:
    return ReportChannel(url, str(token_file), authorities, clock=time.clock, sleep=time.sleep)


@pytest.fixture
def nobody() -> str:
    """An address at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def close_connection(request: BaseHTTPRequestHandler) -> None:
    request.connection.shutdown(socket.SHUT_RDWR)


def say(text: bytes) -> Behaviour:
    """Answers with these bytes, whether they are HTTP or not."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(text)

    return answer


def test_a_report_is_posted_with_the_token_of_the_file(
    report_server: ReportServer, time: VirtualTime, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    opened = channel(report_server.url, time, token)
    assert opened.send(REPORT) == Answer(False)
    token.write_text("rotated")
    opened.send(REPORT)
    assert report_server.tokens == ["Bearer first", "Bearer rotated"]
    assert report_server.paths == ["/v1/namespaces/team/recurrences/digits-0/progress"] * 2
    assert Report.from_json(report_server.reports[0]) == REPORT


def test_the_answer_says_to_stop(report_server: ReportServer, time: VirtualTime) -> None:
    report_server.behaviour = answering(200, b'{"stop": true, "reason": "too dear"}')
    assert channel(report_server.url, time).send(REPORT) == Answer(True, "too dear")


def test_without_an_address_nothing_is_sent(time: VirtualTime) -> None:
    assert channel("", time).send(REPORT) is None
    assert channel("", time).send_last(REPORT, 60.0) is None
    assert time.slept == []


FAILURES: dict[str, Behaviour] = {
    "an error of the server": answering(500, b"oops"),
    "an unknown token": answering(401, b'{"detail": "no"}'),
    "a foreign token": answering(403),
    "a report that is refused": answering(422, b'{"detail": "metric: found nan"}'),
    "a server that is busy": answering(503),
    "a closed connection": close_connection,
    "no HTTP": say(b"SSH-2.0-OpenSSH\r\n"),
    "an error that breaks off": say(b"HTTP/1.1 500 Broken\r\nContent-Length: 100\r\n\r\nabc"),
    "an answer that breaks off": say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
    "an answer that is no JSON": answering(200, b"<html>"),
    "an answer that is no answer": answering(200, b'{"stop": "yes"}'),
    "an answer without end": answering(200, b"[" * 200_000),
    "bytes that are no text": answering(200, b"\xff\xfe\x00"),
}


@pytest.mark.parametrize("behaviour", FAILURES.values(), ids=FAILURES.keys())
def test_whatever_the_server_does_training_goes_on(
    behaviour: Behaviour, report_server: ReportServer, time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    report_server.behaviour = behaviour
    assert channel(report_server.url, time).send(REPORT) is None
    (said,) = caplog.messages
    assert said.startswith(f"report 1 of {report_server.url} was not delivered (")
    assert said.endswith("training goes on, the next report says it again")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[bad", "ftp://127.0.0.1/x", "nonsense", "http://a b/"])
def test_whatever_the_address_is_training_goes_on(url: str, time: VirtualTime) -> None:
    assert channel(url, time).send(REPORT) is None


def test_missing_certificates_lose_a_report_not_the_training(
    time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    assert channel("https://127.0.0.1:1", time, authorities="/nowhere/ca.crt").send(REPORT) is None
    assert "No such file" in caplog.text


@pytest.mark.parametrize("content", [None, b"\xff\xff", b"two\nlines"], ids=["missing", "no ASCII", "two lines"])
def test_a_token_that_cannot_be_sent_loses_a_report_not_the_training(
    content: bytes | None, report_server: ReportServer, time: VirtualTime, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    assert channel(report_server.url, time, token).send(REPORT) is None
    assert report_server.reports == []


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_never_followed_with_the_token(
    code: int, report_server: ReportServer, time: VirtualTime, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    report_server.behaviour = answering(code, Location=f"{report_server.url}/elsewhere")
    assert channel(report_server.url, time, token).send(REPORT) is None
    assert report_server.paths == ["/v1/namespaces/team/recurrences/digits-0/progress"]


def test_a_proxy_of_the_environment_never_sees_the_token(
    report_server: ReportServer, time: VirtualTime, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", nobody)
    assert channel(report_server.url, time).send(REPORT) is not None


def test_a_server_that_does_not_answer_holds_training_up_for_the_timeout_alone(
    time: VirtualTime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reporting, "TIMEOUT_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and says nothing
        assert channel(f"http://127.0.0.1:{silent.getsockname()[1]}", time).send(REPORT) is None
    assert "timed out" in caplog.text


def test_after_a_failure_reports_wait_longer_and_longer(report_server: ReportServer, time: VirtualTime) -> None:
    report_server.behaviour = answering(500)
    opened = channel(report_server.url, time)
    arrived = []
    for _ in range(200):  # a report a second
        opened.send(REPORT)
        arrived.append(len(report_server.reports))
        time.now += 1
    # At 0, 1, 3, 7, 15, 31 seconds, then every 30.
    assert [arrived.index(count) for count in range(1, 8)] == [0, 1, 3, 7, 15, 31, 61]
    report_server.behaviour = answering(200)
    time.now += MAX_WAIT_SECONDS
    assert opened.send(REPORT) == Answer(False)
    assert opened.send(REPORT) == Answer(False)


def test_the_last_report_waits_for_an_operator_that_comes_back(report_server: ReportServer, time: VirtualTime) -> None:
    report_server.behaviour = answering(503)

    def come_back() -> None:
        if len(time.slept) == 4:
            report_server.behaviour = answering(200)

    time.meanwhile = come_back
    assert channel(report_server.url, time).send_last(REPORT, 60.0) == Answer(False)
    assert time.slept == [1.0, 2.0, 4.0, 8.0]


def test_the_last_report_is_given_up_when_patience_ends(nobody: str, time: VirtualTime) -> None:
    assert channel(nobody, time).send_last(REPORT, 20.0) is None
    assert sum(time.slept) <= 20.0
    assert len(time.slept) == 4


def test_a_report_that_is_to_come_later_comes_then_as_the_newest(
    report_server: ReportServer, time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    report_server.behaviour = answering(429, b'{"detail": "too many requests"}', **{"Retry-After": "7"})
    opened = channel(report_server.url, time)
    assert opened.send(REPORT) is None
    assert "too many requests" in caplog.text
    report_server.behaviour = answering(200, b'{"stop": true, "reason": "too dear"}')
    for sequence in (2, 3):
        time.now += 3.0
        assert opened.send(replace(REPORT, sequence=sequence)) is None
        assert opened.send_waiting() is None
    assert len(report_server.reports) == 1
    time.now += 1.0
    assert opened.send_waiting() == Answer(True, "too dear")
    assert [report["sequence"] for report in report_server.reports] == [1, 3]
    assert opened.send_waiting() is None
    assert time.slept == []


@pytest.mark.parametrize(
    ("told", "seconds"), [("7", 7), ("0", 1), ("99999999999999", 30), ("soon", 1), ("-5", 1), ("٧", 1), ("", 1)]
)
def test_the_wait_that_the_operator_asks_for_is_bounded(
    told: str, seconds: float, report_server: ReportServer, time: VirtualTime
) -> None:
    headers = {"Retry-After": told.encode().decode("latin-1")}
    report_server.behaviour = answering(429, b"", **headers)
    opened = channel(report_server.url, time)
    opened.send(REPORT)
    report_server.behaviour = answering(200)
    time.now += seconds - 0.5
    assert opened.send(REPORT) is None
    time.now += 0.5
    assert opened.send(REPORT) == Answer(False)


def test_the_last_report_comes_when_the_operator_asked_for_it(report_server: ReportServer, time: VirtualTime) -> None:
    report_server.behaviour = answering(429, b"", **{"Retry-After": "4"})

    def have_room() -> None:
        if len(time.slept) == 5:
            report_server.behaviour = answering(200)

    time.meanwhile = have_room
    assert channel(report_server.url, time).send_last(REPORT, 60.0) == Answer(False)
    assert time.slept == [4.0] * 5


def test_without_patience_the_last_report_is_tried_once(report_server: ReportServer, time: VirtualTime) -> None:
    report_server.behaviour = answering(500)
    assert channel(report_server.url, time).send_last(REPORT, 0.0) is None
    assert len(report_server.reports) == 1


@pytest.mark.parametrize(("code", "tries"), [(403, 1), (404, 1), (413, 1), (422, 1), (302, 1), (401, 5), (429, 5)])
def test_the_last_report_is_not_repeated_where_it_would_be_refused_again(
    code: int, tries: int, report_server: ReportServer, time: VirtualTime
) -> None:
    report_server.behaviour = answering(code)
    assert channel(report_server.url, time).send_last(REPORT, 20.0) is None
    assert len(report_server.reports) == tries
