"""A rank's messages to the plan service: when each is sent, and what failures of the service lead to."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from support.pipelines.registrations import rank_registration
from wattloop.pipeline.plan_messages import (
    Directive,
    InstructionMeasurement,
    RankRegistration,
    RankReport,
    StragglerNotice,
)
from wattloop.pipeline.plan_service import MAX_WAIT_SECONDS, UNREGISTERED_SECONDS, PlanExchange

MEASURED = InstructionMeasurement("forward", 0, 1410, 7, 0.1, 0.001, 20.0, 0.5)
PLAN = Directive(number=1, mode="Plan", clocks_megahertz=(1410,))


def http_error(status: int, message: str = "", **headers: str) -> HTTPError:
    fields = Message()
    for name, value in headers.items():
        fields[name.replace("_", "-")] = value
    return HTTPError("http://api", status, HTTPStatus(status).phrase, fields, io.BytesIO(message.encode()))


@dataclass
class Service:
    """The plan service and the rank, as the exchange sees them.

    Attributes:
        answers: What the next requests get: a directive, or an error.
        requests: Method, path and body of each request.
        received: The directives that the rank was given.
        instructions_known: Whether the rank can register.
        measurements: What the rank has measured.
    """

    answers: list[Directive | Exception] = field(default_factory=list)
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    received: list[Directive] = field(default_factory=list)
    instructions_known: bool = True
    measurements: tuple[InstructionMeasurement, ...] = ()

    def send(self, method: str, path: str, body: object, timeout_seconds: float, max_answer_bytes: int) -> Any:
        self.requests.append((method, path, json.loads(json.dumps(body))))
        answer = self.answers.pop(0) if self.answers else Directive()
        if isinstance(answer, Exception):
            raise answer
        return answer.to_json()

    def registration(self) -> RankRegistration | None:
        return rank_registration(3, stages=4) if self.instructions_known else None

    def report(self) -> RankReport:
        acknowledged = max((each.number for each in self.received), default=0)
        return RankReport("0" * 32, 0, acknowledged, iterations=4, measurements=self.measurements)

    def receive(self, directive: Directive) -> None:
        self.received.append(directive)

    def exchange(self) -> PlanExchange:
        return PlanExchange(self, self, jitter=lambda: 0.0)

    @property
    def sent(self) -> list[str]:
        return [f"{method} {path}" for method, path, _ in self.requests]


REGISTRATION = "PUT /pipeline/ranks/3"
REPORT = "POST /pipeline/ranks/3/report"


def test_a_rank_registers_when_its_instructions_are_known_and_reports_as_often_as_the_service_says() -> None:
    service = Service([Directive(report_seconds=20.0), Directive(report_seconds=5.0)], instructions_known=False)
    exchange = service.exchange()
    assert (exchange.step(), service.requests) == (UNREGISTERED_SECONDS, [])
    service.instructions_known = True
    assert [exchange.step(), exchange.step()] == [20.0, 5.0]
    assert service.sent == [REGISTRATION, REPORT]
    RankRegistration.from_json(service.requests[0][2])
    assert RankReport.from_json(service.requests[1][2]).sequence == 1


def test_the_ranks_of_a_large_job_register_one_after_the_other() -> None:
    service = Service()
    registration = rank_registration(3, stages=4, data_parallel=250)
    service.registration = lambda: registration  # type: ignore[method-assign]
    exchange = PlanExchange(service, service, jitter=lambda: 0.5)
    assert (exchange.step(), service.requests) == (2.0, [])
    assert (exchange.step(), service.sent) == (5.0, [REGISTRATION])


def test_a_new_directive_is_acknowledged_at_once() -> None:
    service = Service([Directive(), PLAN, PLAN, Directive(number=1, mode="Plan", first_iteration=9)])
    exchange = service.exchange()
    assert [exchange.step() for _ in range(4)] == [5.0, 0.0, 5.0, 5.0]
    assert [body["directive"] for _, _, body in service.requests[1:]] == [0, 1, 1]
    assert [each.first_iteration for each in service.received] == [None, None, None, 9]


def test_a_service_that_has_lost_the_process_gets_its_registration_and_its_measurements_again() -> None:
    service = Service([Directive(), Directive(), Directive(known=False), Directive()], measurements=(MEASURED,))
    exchange = service.exchange()
    for _ in range(5):
        exchange.step()
    assert service.sent == [REGISTRATION, REPORT, REPORT, REGISTRATION, REPORT]
    assert [len(body["measurements"]) for method, _, body in service.requests if method == "POST"] == [1, 0, 1]
    assert all(each.known for each in service.received)


def test_two_processes_that_replace_each_other_are_named_and_register_ever_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service([Directive(), Directive(known=False)] * 8)
    exchange = PlanExchange(service, service, jitter=lambda: 1.0)
    waits = [exchange.step() for _ in range(16)]
    assert waits[1::2] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    (record,) = caplog.records
    assert "takes another process for rank 3 again and again" in record.getMessage()


def test_measurements_are_sent_until_they_are_delivered_and_again_when_they_change() -> None:
    service = Service([Directive(), URLError("unreachable")], measurements=(MEASURED,))
    exchange = service.exchange()
    for _ in range(4):
        exchange.step()
    service.measurements = (MEASURED, InstructionMeasurement("backward", 0, 1410, 7, 0.2, None, None, None))
    exchange.step()
    assert [len(body["measurements"]) for _, _, body in service.requests[1:]] == [1, 1, 0, 2]


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (lambda: URLError("unreachable"), [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]),
        (lambda: http_error(500), [1.0, 2.0, 4.0]),
        (lambda: http_error(401), [1.0, 2.0, 4.0]),
        (lambda: http_error(429, Retry_After="7"), [7.0, 7.0]),
        (lambda: http_error(503, Retry_After="900"), [MAX_WAIT_SECONDS]),
        (lambda: http_error(409, '{"error": "rank 3 has 4 stages, rank 0 has 2"}'), [MAX_WAIT_SECONDS] * 3),
        (lambda: ValueError("no JSON"), [1.0, 2.0]),
    ],
)
def test_a_failure_is_repeated_ever_later(error: Callable[[], Exception], waits: list[float]) -> None:
    service = Service([error() for _ in waits])
    exchange = service.exchange()
    assert [exchange.step() for _ in waits] == waits
    assert exchange.step() == 5.0, "after a success, the first wait is short again"
    service.answers = [URLError("unreachable")]
    assert exchange.step() == 1.0


def test_one_warning_names_what_the_service_says_of_two_ranks_that_contradict_each_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service([http_error(409, '{"error": "rank 3 has 4 stages, rank 0 has 2"}') for _ in range(3)])
    exchange = service.exchange()
    for _ in range(3):
        exchange.step()
    (record,) = caplog.records
    assert record.getMessage() == (
        "the plan service refuses a message of this rank, trying again: HTTP 409 Conflict: "
        '{"error": "rank 3 has 4 stages, rank 0 has 2"}'
    )


@pytest.mark.parametrize("status", [400, 403, 404, 413, 422])
def test_a_rank_that_is_rejected_for_good_sends_nothing_more(status: int) -> None:
    service = Service([http_error(status, "no such recurrence")])
    exchange = service.exchange()
    assert [exchange.step(), exchange.step()] == [UNREGISTERED_SECONDS] * 2
    assert service.sent == [REGISTRATION]
    assert "no such recurrence" in exchange.rejected
    assert exchange.finish()
    assert service.sent == [REGISTRATION]


@pytest.mark.parametrize(
    ("answer", "done"), [(Directive(), True), (URLError("unreachable"), False), (http_error(404), True)]
)
def test_the_last_report_says_so_and_may_be_repeated(answer: Directive | Exception, done: bool) -> None:
    service = Service([Directive(), answer])
    exchange = service.exchange()
    exchange.step()
    assert exchange.finish() is done
    assert service.requests[-1][2]["finished"] is True


def test_a_rank_that_never_registered_has_nothing_to_finish() -> None:
    service = Service()
    assert service.exchange().finish()
    assert service.requests == []


@pytest.mark.parametrize(("answer", "done"), [(Directive(), True), (http_error(500), False), (http_error(404), True)])
def test_a_straggler_is_announced_until_that_is_delivered(answer: Directive | Exception, done: bool) -> None:
    service = Service([answer])
    assert service.exchange().announce(StragglerNotice(3.5, "a throttled rack")) is done
    assert service.requests == [
        ("POST", "/pipeline/straggler", {"iteration_seconds": 3.5, "reason": "a throttled rack"})
    ]
