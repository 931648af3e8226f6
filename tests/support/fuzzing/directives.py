"""Fuzz target: the answers of a plan service, as a training process reads and applies them."""

import http.client
import io
import json
import logging
import math
from dataclasses import replace
from email.message import Message
from typing import Any
from urllib.error import HTTPError

from support.fuzzing.logs import DefectLog
from support.fuzzing.target import DefectError
from support.pipelines.registrations import CLOCKS, rank_registration
from wattloop.energy.energy_timeline import CounterEdge
from wattloop.pipeline.directives import AllowedClocks, ClockChoice, DirectiveState
from wattloop.pipeline.free_iterations import FreeIterations
from wattloop.pipeline.instruction_scope import InstructionSequence
from wattloop.pipeline.knobs import KnobChoices
from wattloop.pipeline.pipeline_meter import PipelineMeter
from wattloop.pipeline.plan_messages import (
    MODES,
    PLAN,
    PROFILE,
    Directive,
    RankRegistration,
    RankReport,
    StragglerNotice,
)
from wattloop.pipeline.plan_service import PlanExchange
from wattloop.wire.operator_api import OperatorApi

SEPARATOR = b"\n%%\n"
# Begins an answer that is an error: the status, and Retry-After.
STATUS = b"HTTP "
MAX_ANSWERS = 16
# The longest report_seconds of a directive, and the longest wait after a failure, with its jitter.
MAX_STEP_SECONDS = 3_600.0
ITERATIONS_PER_ANSWER = 3
MAX_WARNING_CHARACTERS = 2_048
ALLOWED = AllowedClocks("NVIDIA A40", CLOCKS, CLOCKS[:-1])
REGISTRATION = rank_registration(0, clocks=ALLOWED.allowed_megahertz)


class DirectiveTarget:
    """A rank's exchange with the plan service, and the clocks that it chooses; an input is a few successive answers.

    A line of %% separates answers. Each is the body of a response; one that begins with ``HTTP 409 30`` and a line
    end is that of an error with this status and this Retry-After.

    Checks: no exception; each message is followed by the next after a bounded time; a problem is one line in the log,
    and nothing is logged as an error; the clocks of each iteration are none, or one that the GPUs may hold for each
    instruction, with as many knobs; a directive that is valid is read unchanged from its wire form.
    """

    tokens = (
        b'{"known": false}', b'"number": ', b'"mode": "Plan"', b'"mode": "Profile"', b'"mode": "Free"',
        b'"first_iteration": 0', b'"first_iteration": null', b'"clocks_megahertz": [900, 1100, 1300, 900]',
        b'"clocks_megahertz": [', b'"knobs": ', b'"free": ', b'"block": ', b'"cycle": ', b'"early_cycle": ',
        b'"warm_up_iterations": 0', b'"iterations_per_clock": 0', b'"report_seconds": ', b'"reason": ', SEPARATOR,
        b"HTTP 409 \n", b"HTTP 429 5\n", b"HTTP 503 99999999999\n", b"HTTP 401 \n", b"HTTP 400 \xc2\xb2\n", b"NaN",
        b"Infinity", b"1e999", b"-0.0", b"5e-324", b"9" * 400, b"9" * 5000, b"[" * 2000, b'{"a":' * 1000, b"true",
        b'"\\ud800"', b'"\\u0000"', b'"\\u001b[31m"', b"\xff", b"\xef\xbb\xbf", b"null"
    )  # fmt: skip

    def __init__(self) -> None:
        self._log = DefectLog("wattloop", level=logging.WARNING)
        self._log.__enter__()

    def seeds(self) -> list[bytes]:
        """The answers from a registration to a plan, and answers that no plan service gives."""
        length = len(REGISTRATION.instructions)
        profile = Directive(number=1, mode=PROFILE, clocks_megahertz=ALLOWED.allowed_megahertz[::-1])
        plan = Directive(number=2, mode=PLAN, clocks_megahertz=(900,) * length)
        knobs = KnobChoices.of([{"sm": str(8 * number)} for number in range(length)])
        directives = [
            Directive(report_seconds=0.5, reason="the first iterations are timed"),
            profile,
            replace(profile, first_iteration=2, warm_up_iterations=0),
            plan,
            replace(plan, first_iteration=6, free=FreeIterations(2, 1, 6, 10)),
            replace(plan, first_iteration=6, knobs=knobs),
            replace(plan, number=3, first_iteration=8, clocks_megahertz=(1410,) * length),
            Directive(known=False),
        ]
        answers = [json.dumps(each.to_json()).encode() for each in directives]
        answers.append(answers[5].replace(b'"choices": [', b'"choices": [0, '))
        others = [b"HTTP 409 \nno", b"HTTP 429 5\n", b"HTTP 503 \n", b"HTTP 400 \nno", b"", b"{}", b"[]", b"null"]
        return [
            *answers,
            *others,
            SEPARATOR.join(answers[:6]),
            SEPARATOR.join((*answers[:4], others[0], *answers[4:8])),
            SEPARATOR.join((answers[0], others[2], answers[7], answers[0], answers[4])),
        ]

    def check(self, data: bytes) -> None:
        self._log.clear()
        rank = _Rank()
        exchange = PlanExchange(_Answers(data.split(SEPARATOR)[:MAX_ANSWERS]), rank, jitter=lambda: 1.0)
        for _ in range(MAX_ANSWERS + 1):
            seconds = exchange.step()
            if not (math.isfinite(seconds) and 0 <= seconds <= MAX_STEP_SECONDS):
                raise DefectError(f"the next message follows after {seconds} s")
            rank.iterate()
        exchange.announce(StragglerNotice(2.5, "slow"))
        exchange.finish()
        for level, message in self._log.taken():
            if level >= logging.ERROR or len(message) > MAX_WARNING_CHARACTERS:
                raise DefectError(f"the log has: {message[:MAX_WARNING_CHARACTERS]}")

    def close(self) -> None:
        self._log.__exit__(None, None, None)


class _Rank:
    """A rank that is known from its registration on; see `wattloop.pipeline.plan_service.Rank`."""

    def __init__(self) -> None:
        self._state = DirectiveState()
        self._choice = ClockChoice(
            self._state,
            InstructionSequence(REGISTRATION.sequence),
            PipelineMeter(_NoReadings(), ["GPU-0"], first_rank=True).profiling_clock,
        )
        self._choice.allowed = ALLOWED
        self._iterations = 0

    def registration(self) -> RankRegistration | None:
        return REGISTRATION

    def report(self) -> RankReport:
        report = RankReport(REGISTRATION.process, 0, self._state.acknowledged, self._iterations)
        return RankReport.from_json(report.to_json())

    def receive(self, directive: Directive) -> None:
        if directive.mode not in MODES or Directive.from_json(json.loads(json.dumps(directive.to_json()))) != directive:
            raise DefectError(f"a directive whose wire form is not read unchanged: {directive}")
        self._state.receive(directive)

    def iterate(self) -> None:
        """Choose the clocks of a few iterations."""
        for _ in range(ITERATIONS_PER_ANSWER):
            chosen = self._choice.clocks_of(self._iterations, "")
            self._iterations += 1
            length = len(REGISTRATION.instructions)
            if chosen.megahertz and (
                len(chosen.megahertz) != length or not set(chosen.megahertz) <= set(ALLOWED.allowed_megahertz)
            ):
                raise DefectError(f"the clocks {chosen.megahertz} for {length} instructions")
            if len(chosen.knobs) not in (0, length):
                raise DefectError(f"knobs of {len(chosen.knobs)} instructions for {length}")


class _Answers:
    """Reads each answer as `OperatorApi` does."""

    def __init__(self, answers: list[bytes]) -> None:
        self._answers = answers
        self._api = _ApiOfResponse("http://operator")

    def send(self, method: str, path: str, body: object, timeout_seconds: float, max_answer_bytes: int) -> Any:
        if not self._answers:
            raise http.client.RemoteDisconnected("the server is gone")
        self._api.response = self._answers.pop(0)
        return self._api.send(method, path, body, timeout_seconds, max_answer_bytes)


class _ApiOfResponse(OperatorApi):
    """The real client, whose connection gives these bytes."""

    response = b""

    def _opener(self, scheme: str) -> Any:
        return self

    def open(self, request: Any, timeout: float) -> io.BytesIO:
        if not self.response.startswith(STATUS):
            return io.BytesIO(self.response)
        head, _, body = self.response.partition(b"\n")
        status, _, retry_after = head.removeprefix(STATUS).decode("latin-1").partition(" ")
        headers = Message()
        if retry_after.isprintable():
            headers["Retry-After"] = retry_after
        code = int(status[:9]) if status.isascii() and status.isdecimal() else 500
        raise HTTPError(request.full_url, 400 + code % 200, "reason", headers, io.BytesIO(body))


class _NoReadings:
    """The counters of GPUs that are not read."""

    def edges(self, uuid: str, first: int, *, final: bool = True) -> list[CounterEdge]:
        return []

    def joules_between(self, uuids: Any, begin_seconds: float, end_seconds: float) -> float | None:
        return None
