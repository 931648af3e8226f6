"""Reports over real HTTP: training continues whatever the operator answers, and a later report delivers all data."""

import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from support.http_stand_in import Behaviour
from support.reporting.report_server import ReportServer, answering
from wattloop.run import report_channel
from wattloop.run.report_channel import MAX_WAIT_SECONDS, ReportChannel
from wattloop.wire.training_messages import Answer, Report

REPORT = Report(process="p", sequence=1, epoch=1.0, metric=0.5, evaluations=1)


@dataclass
class VirtualTime:
    """A clock that `sleep` advances; calls `meanwhile` during each sleep."""

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
def unused_url() -> str:
    """A URL that no server listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def close_connection(request: BaseHTTPRequestHandler) -> None:
    request.connection.shutdown(socket.SHUT_RDWR)


def sending(text: bytes) -> Behaviour:
    """Answers with these bytes, valid HTTP or not."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(text)

    return answer


def test_a_report_carries_the_current_token_of_the_file(
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


def test_the_answer_can_request_a_stop(report_server: ReportServer, time: VirtualTime) -> None:
    report_server.behaviour = answering(200, b'{"stop": true, "reason": "too expensive"}')
    assert channel(report_server.url, time).send(REPORT) == Answer(True, "too expensive")


def test_without_a_url_no_report_is_sent(time: VirtualTime) -> None:
    assert channel("", time).send(REPORT) is None
    assert channel("", time).send_last(REPORT, 60.0) is None
    assert time.slept == []


FAILURES: dict[str, Behaviour] = {
    "an error of the server": answering(500, b"oops"),
    "an unknown token": answering(401, b'{"detail": "no"}'),
    "another job's token": answering(403),
    "a rejected report": answering(422, b'{"detail": "metric: found nan"}'),
    "a busy server": answering(503),
    "a closed connection": close_connection,
    "no HTTP": sending(b"SSH-2.0-OpenSSH\r\n"),
    "a truncated error": sending(b"HTTP/1.1 500 Broken\r\nContent-Length: 100\r\n\r\nabc"),
    "a truncated answer": sending(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
    "an answer that is not JSON": answering(200, b"<html>"),
    "an invalid answer": answering(200, b'{"stop": "yes"}'),
    "an answer that is too long": answering(200, b"[" * 200_000),
    "bytes that are not text": answering(200, b"\xff\xfe\x00"),
}


@pytest.mark.parametrize("behaviour", FAILURES.values(), ids=FAILURES.keys())
def test_training_continues_whatever_the_server_does(
    behaviour: Behaviour, report_server: ReportServer, time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    report_server.behaviour = behaviour
    assert channel(report_server.url, time).send(REPORT) is None
    (logged,) = caplog.messages
    assert logged.startswith(f"report 1 of {report_server.url} was not delivered (")
    assert logged.endswith("training continues, and the next report contains its data")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[bad", "ftp://127.0.0.1/x", "nonsense", "http://a b/"])
def test_training_continues_with_any_url(url: str, time: VirtualTime) -> None:
    assert channel(url, time).send(REPORT) is None


def test_training_continues_without_certificates(time: VirtualTime, caplog: pytest.LogCaptureFixture) -> None:
    assert channel("https://127.0.0.1:1", time, authorities="/nowhere/ca.crt").send(REPORT) is None
    assert "No such file" in caplog.text


@pytest.mark.parametrize("content", [None, b"\xff\xff", b"two\nlines"], ids=["missing", "no ASCII", "two lines"])
def test_training_continues_without_a_valid_token(
    content: bytes | None, report_server: ReportServer, time: VirtualTime, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    assert channel(report_server.url, time, token).send(REPORT) is None
    assert report_server.reports == []


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(code: int, report_server: ReportServer, time: VirtualTime, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    report_server.behaviour = answering(code, Location=f"{report_server.url}/elsewhere")
    assert channel(report_server.url, time, token).send(REPORT) is None
    assert report_server.paths == ["/v1/namespaces/team/recurrences/digits-0/progress"]


def test_a_proxy_of_the_environment_is_not_used(
    report_server: ReportServer, time: VirtualTime, unused_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", unused_url)
    assert channel(report_server.url, time).send(REPORT) is not None


def test_a_silent_server_delays_training_by_at_most_the_timeout(
    time: VirtualTime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(report_channel, "TIMEOUT_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts without an answer
        assert channel(f"http://127.0.0.1:{silent.getsockname()[1]}", time).send(REPORT) is None
    assert "timed out" in caplog.text


def test_reports_back_off_exponentially_after_failures(report_server: ReportServer, time: VirtualTime) -> None:
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


def test_the_last_report_is_retried_until_the_operator_answers(report_server: ReportServer, time: VirtualTime) -> None:
    report_server.behaviour = answering(503)

    def become_available() -> None:
        if len(time.slept) == 4:
            report_server.behaviour = answering(200)

    time.meanwhile = become_available
    assert channel(report_server.url, time).send_last(REPORT, 60.0) == Answer(False)
    assert time.slept == [1.0, 2.0, 4.0, 8.0]


def test_the_last_report_is_retried_until_the_timeout(unused_url: str, time: VirtualTime) -> None:
    assert channel(unused_url, time).send_last(REPORT, 20.0) is None
    assert sum(time.slept) <= 20.0
    assert len(time.slept) == 4


def test_the_newest_report_is_sent_at_the_time_of_retry_after(
    report_server: ReportServer, time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    report_server.behaviour = answering(429, b'{"detail": "too many requests"}', **{"Retry-After": "7"})
    opened = channel(report_server.url, time)
    assert opened.send(REPORT) is None
    assert "too many requests" in caplog.text
    report_server.behaviour = answering(200, b'{"stop": true, "reason": "too expensive"}')
    for sequence in (2, 3):
        time.now += 3.0
        assert opened.send(replace(REPORT, sequence=sequence)) is None
        assert opened.send_delayed() is None
    assert len(report_server.reports) == 1
    time.now += 1.0
    assert opened.send_delayed() == Answer(True, "too expensive")
    assert [report["sequence"] for report in report_server.reports] == [1, 3]
    assert opened.send_delayed() is None
    assert time.slept == []


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7), ("0", 1), ("99999999999999", 30), ("soon", 1), ("-5", 1), ("٧", 1), ("", 1)]
)
def test_the_delay_of_retry_after_is_bounded(
    header: str, seconds: float, report_server: ReportServer, time: VirtualTime
) -> None:
    headers = {"Retry-After": header.encode().decode("latin-1")}
    report_server.behaviour = answering(429, b"", **headers)
    opened = channel(report_server.url, time)
    opened.send(REPORT)
    report_server.behaviour = answering(200)
    time.now += seconds - 0.5
    assert opened.send(REPORT) is None
    time.now += 0.5
    assert opened.send(REPORT) == Answer(False)


def test_the_last_report_is_retried_at_the_interval_of_retry_after(
    report_server: ReportServer, time: VirtualTime
) -> None:
    report_server.behaviour = answering(429, b"", **{"Retry-After": "4"})

    def become_available() -> None:
        if len(time.slept) == 5:
            report_server.behaviour = answering(200)

    time.meanwhile = become_available
    assert channel(report_server.url, time).send_last(REPORT, 60.0) == Answer(False)
    assert time.slept == [4.0] * 5


def test_the_last_report_is_tried_once_with_a_timeout_of_zero(report_server: ReportServer, time: VirtualTime) -> None:
    report_server.behaviour = answering(500)
    assert channel(report_server.url, time).send_last(REPORT, 0.0) is None
    assert len(report_server.reports) == 1


@pytest.mark.parametrize(("code", "tries"), [(403, 1), (404, 1), (413, 1), (422, 1), (302, 1), (401, 5), (429, 5)])
def test_the_last_report_is_not_retried_after_a_permanent_error(
    code: int, tries: int, report_server: ReportServer, time: VirtualTime
) -> None:
    report_server.behaviour = answering(code)
    assert channel(report_server.url, time).send_last(REPORT, 20.0) is None
    assert len(report_server.reports) == tries
