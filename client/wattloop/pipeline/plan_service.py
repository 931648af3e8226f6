"""The rank's side of the operator's plan service: registration, reports, and the directives that answer them.

A thread of its own sends them. An undelivered report is dropped, because the next one contains all its data. A
service that does not know the process any more says so, and the rank registers again.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.error import HTTPError

from wattloop.pipeline.plan_messages import (
    MAX_PIPELINE_MESSAGE_BYTES,
    Directive,
    InstructionMeasurement,
    RankRegistration,
    StragglerNotice,
)
from wattloop.pipeline.rank_messages import RankMessages
from wattloop.threads import TaskThread
from wattloop.wire.operator_api import REQUEST_ERRORS, OperatorApi, describe_error, is_permanent, retry_after_seconds

logger = logging.getLogger("wattloop")

TIMEOUT_SECONDS = 10.0
FIRST_WAIT_SECONDS = 1.0
MAX_WAIT_SECONDS = 30.0
# Of a rank whose instructions are not known yet, which wakes the thread when they are.
UNREGISTERED_SECONDS = 60.0
# More ranks than this spread their first registrations, at a rate that one replica answers within 100 ms.
MAX_RANKS_AT_ONCE = 64
REGISTRATIONS_PER_SECOND = 250
LAST_REPORT_SECONDS = 10.0
# So often only two processes that replace each other are forgotten.
MANY_TIMES_FORGOTTEN = 4
MAX_DOUBLINGS = 5
CONFLICT = 409


@dataclass
class _Delivered:
    """What the service knows of this process."""

    registered: bool = False
    directive: int = 0
    measurements: tuple[InstructionMeasurement, ...] = ()


class PlanExchange:
    """Exchanges messages with the plan service, one after the other; not thread-safe.

    Args:
        api: Sends requests.
        rank: The rank.
        jitter: Numbers from 0 to 1, so that ranks that failed together do not repeat together.

    Attributes:
        rejected: Why the service rejects this rank for good; empty while it does not.
    """

    def __init__(self, api: OperatorApi, rank: RankMessages, jitter: Callable[[], float] = random.random) -> None:
        self._api = api
        self._rank = rank
        self._jitter = jitter
        self._delivered = _Delivered()
        self._sequence = 0
        self._wait_seconds = 0.0
        self._number = 0
        self._times_forgotten = 0
        self._problem = ""
        self._has_waited = False
        self.rejected = ""

    def step(self) -> float:
        """Register or report once; returns the seconds until the next call."""
        if self.rejected:
            return UNREGISTERED_SECONDS
        registration = None if self._delivered.registered else self._rank.registration()
        if registration is None and not self._delivered.registered:
            return UNREGISTERED_SECONDS
        if registration is not None and not self._has_waited:
            self._has_waited = True
            if registration.ranks > MAX_RANKS_AT_ONCE:
                return self._jitter() * registration.ranks / REGISTRATIONS_PER_SECOND
        try:
            directive = self._register(registration) if registration is not None else self._report(finished=False)
        except REQUEST_ERRORS as error:
            return self._failed(error)
        self._problem, self._wait_seconds = "", 0.0
        if not directive.known:
            return self._forgotten()
        self._rank.receive(directive)
        is_new = directive.number > self._delivered.directive
        # A new directive is acknowledged at once: it begins when all ranks have done so.
        return 0.0 if is_new else directive.report_seconds

    def announce(self, notice: StragglerNotice) -> bool:
        """Announce a straggler, or that it is over; returns whether that was delivered or is rejected for good."""
        try:
            self._send("POST", "/pipeline/straggler", notice.to_json())
        except REQUEST_ERRORS as error:
            self._warn(f"the straggler was not announced: {describe_error(error)}")
            return is_permanent(error)
        return True

    def finish(self) -> bool:
        """Send the last report; returns whether it was delivered or there is nothing to report."""
        if not self._delivered.registered or self.rejected:
            return True
        try:
            self._report(finished=True)
        except REQUEST_ERRORS as error:
            self._warn(f"the last report was not delivered: {describe_error(error)}")
            return is_permanent(error)
        return True

    def _register(self, registration: RankRegistration) -> Directive:
        self._number = registration.rank
        answer = self._send("PUT", f"/pipeline/ranks/{registration.rank}", registration.to_json())
        directive = Directive.from_json(answer)
        self._delivered = _Delivered(registered=True)
        return directive

    def _report(self, *, finished: bool) -> Directive:
        report, delivered = self._rank.report(), self._delivered
        self._sequence += 1
        measured = report.measurements
        report = replace(
            report,
            sequence=self._sequence,
            # The service keeps what it has.
            measurements=() if measured == delivered.measurements else measured,
            finished=finished,
        )
        answer = self._send("POST", f"/pipeline/ranks/{self._number}/report", report.to_json())
        directive = Directive.from_json(answer)
        delivered.measurements, delivered.directive = measured, report.directive
        return directive

    def _send(self, method: str, path: str, body: object) -> Any:
        return self._api.send(method, path, body, TIMEOUT_SECONDS, MAX_PIPELINE_MESSAGE_BYTES)

    def _forgotten(self) -> float:
        """The service has lost the registration, or another process has replaced this one."""
        self._delivered = _Delivered()
        self._times_forgotten += 1
        if self._times_forgotten == MANY_TIMES_FORGOTTEN:
            self._warn(
                f"the plan service takes another process for rank {self._number} again and again: does each process "
                "have its own data_rank, tensor_rank and stage, and are the degrees those of the job?"
            )
        waits = FIRST_WAIT_SECONDS * 2.0 ** min(self._times_forgotten - 1, MAX_DOUBLINGS)
        return min(waits, MAX_WAIT_SECONDS) * self._jitter()

    def _failed(self, error: Exception) -> float:
        is_conflict = isinstance(error, HTTPError) and error.code == CONFLICT
        requested, text = retry_after_seconds(error), describe_error(error)
        if is_permanent(error) and not is_conflict:
            self.rejected = text
            self._warn(f"the operator rejects this rank, whose GPUs run at free clocks: {text}")
            return UNREGISTERED_SECONDS
        what = "refuses a message of this rank" if isinstance(error, HTTPError) else "is not reached"
        self._warn(f"the plan service {what}, trying again: {text}")
        doubled = max(2 * self._wait_seconds, FIRST_WAIT_SECONDS)
        # Another rank has to change before a registration that contradicts it is accepted.
        self._wait_seconds = MAX_WAIT_SECONDS if is_conflict else min(doubled, MAX_WAIT_SECONDS)
        return (self._wait_seconds if requested is None else min(requested, MAX_WAIT_SECONDS)) * (
            1 + self._jitter() / 2
        )

    def _warn(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            logger.warning("%s", problem)


class PlanServiceThread:
    """Runs the exchange in a thread until it is closed.

    Args:
        exchange: The exchange.
        clock: Monotonic clock, in seconds.
    """

    def __init__(self, exchange: PlanExchange, clock: Callable[[], float] = time.monotonic) -> None:
        self._exchange = exchange
        self._clock = clock
        self._changed = threading.Condition()
        self._notices: list[StragglerNotice] = []
        self._woken = self._closing = False
        self._thread = TaskThread(self._run, "wattloop-plan-service")

    def start(self) -> None:
        """Begin to register and report."""
        self._thread.start()

    def wake(self) -> None:
        """Have the next message sent now."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def announce(self, notice: StragglerNotice) -> None:
        """Send a notice as soon as possible; a newer one replaces it."""
        with self._changed:
            self._notices = [notice]
            self._woken = True
            self._changed.notify()

    def close(self, *, retry: bool = True) -> None:
        """Send the last report and end.

        Args:
            retry: Whether to try for some seconds; otherwise once.
        """
        deadline = self._clock() + (LAST_REPORT_SECONDS if retry else 0.0)
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(LAST_REPORT_SECONDS + TIMEOUT_SECONDS)
        while not self._thread.is_alive() and not self._exchange.finish() and self._clock() < deadline:
            time.sleep(FIRST_WAIT_SECONDS)

    def _run(self) -> None:
        next_step = 0.0
        while not self._closing:
            notice = self._notices[-1] if self._notices else None
            if notice is not None and self._exchange.announce(notice):
                with self._changed:
                    if self._notices[-1] is notice:
                        self._notices = []
            if self._woken or self._clock() >= next_step:
                self._woken = False
                next_step = self._clock() + self._exchange.step()
            with self._changed:
                until = FIRST_WAIT_SECONDS if self._notices else max(next_step - self._clock(), 0.0)
                self._changed.wait_for(lambda: self._closing or self._woken, until)
