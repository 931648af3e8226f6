"""Sends reports over HTTP. A failure does not end the training.

An undelivered report is dropped, because the next one contains all its data. After a failure the channel backs off, up
to half a minute, so that an unreachable operator does not slow training steps.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from wattloop.wire.operator_api import REQUEST_ERRORS, OperatorApi, describe_error, is_permanent, retry_after_seconds
from wattloop.wire.training_messages import Answer, Report

if TYPE_CHECKING:
    from wattloop.run.termination_message import TerminationMessage

logger = logging.getLogger("wattloop")

TIMEOUT_SECONDS = 5.0
# The operator answers a rank that asks for a verdict when it is made, or after 20 s.
VERDICT_TIMEOUT_SECONDS = 30.0
FIRST_WAIT_SECONDS = 1.0
MAX_WAIT_SECONDS = 30.0
MAX_ANSWER_BYTES = 64 * 1024


class ReportChannel:
    """Sends the reports of one attempt to the reporting API.

    Each method that sends returns the operator's answer; None if the report was not delivered.

    Args:
        url: URL of the recurrence at the reporting API; empty to send no reports.

    Attributes:
        wait_seconds: How long to wait before the next attempt after a failure; 0 after a success.
        rejected_permanently: Whether the server rejected the last report, and would reject it again.
    """

    def __init__(
        self,
        url: str,
        token_file: str = "",
        certificate_authority_file: str = "",
        *,
        termination_message_path: str = "",
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._api = OperatorApi(url, token_file, certificate_authority_file)
        self._url = self._api.url
        self._clock = clock
        self._sleep = sleep
        self.wait_seconds = 0.0
        self._next_attempt = -float("inf")
        self.rejected_permanently = False
        self._delayed: Report | None = None
        self._termination_message: TerminationMessage | None = None
        if termination_message_path:
            # Imported here because it needs a system with locks of files, as every container has.
            from wattloop.run.termination_message import TerminationMessage  # noqa: PLC0415

            self._termination_message = TerminationMessage(termination_message_path)

    @property
    def has_url(self) -> bool:
        """Whether there is an operator to report to."""
        return bool(self._url)

    def ask(self, report: Report) -> Answer | None:
        """Deliver a report that asks for a verdict, also during a backoff, and wait for the answer."""
        self._next_attempt = -float("inf")
        return self.send(report, VERDICT_TIMEOUT_SECONDS)

    def send(self, report: Report, timeout_seconds: float = TIMEOUT_SECONDS) -> Answer | None:
        """Deliver a report, or return immediately during the backoff after a failure."""
        if not self._url:
            return None
        if self._clock() < self._next_attempt:
            # The newest report contains the data of the delayed one.
            self._delayed = None if self._delayed is None else report
            self._leave(report)
            return None
        try:
            body = self._api.send("POST", "/progress", report.to_json(), timeout_seconds, MAX_ANSWER_BYTES)
            answer = Answer.from_json(body)
        except REQUEST_ERRORS as error:
            self.rejected_permanently = is_permanent(error)
            requested = retry_after_seconds(error)
            self._delayed = None if requested is None else report
            doubled = max(2 * self.wait_seconds, FIRST_WAIT_SECONDS)
            self.wait_seconds = min(doubled if requested is None else requested, MAX_WAIT_SECONDS)
            self._next_attempt = self._clock() + self.wait_seconds
            logger.warning(
                "report %d of %s was not delivered (%s); training continues, and the next report contains its data",
                report.sequence,
                self._url,
                describe_error(error),
            )
            self._leave(report)
            return None
        self.wait_seconds = 0.0
        self.rejected_permanently = False
        self._delayed = None
        if self._termination_message is not None:
            self._termination_message.withdraw()
        return answer

    def send_delayed(self) -> Answer | None:
        """Send the report that the server asked to receive later, once it is due; cheap if there is none."""
        if self._delayed is None or self._clock() < self._next_attempt:
            return None
        return self.send(self._delayed)

    def send_last(self, report: Report, timeout_seconds: float) -> Answer | None:
        """Deliver the last report, with retries until a timeout."""
        deadline = self._clock() + timeout_seconds
        self._next_attempt = -float("inf")
        while True:
            answer = self.send(report)
            if answer is not None or not self._url or self.rejected_permanently:
                return answer
            if self._clock() + self.wait_seconds >= deadline:
                return None
            self._sleep(self.wait_seconds)

    def _leave(self, report: Report) -> None:
        if self._termination_message is not None:
            self._termination_message.leave(report)


# A report may be lost, and the next one may have to wait for the backoff after a failure.
REPORTS_PER_DEADLINE = 4


class Heartbeat:
    """Times the reports that show progress.

    Only the training's own steps ask whether one is due. A thread would report for a training that hangs.

    Args:
        deadline_seconds: Seconds of silence after which the operator ends the attempt; None: never.
        clock: Monotonic seconds.

    Example:
        >>> seconds = [0.0]
        >>> heartbeat = Heartbeat(600.0, lambda: seconds[0])
        >>> seconds[0] = 149.0
        >>> heartbeat.is_due()
        False
        >>> seconds[0] = 150.0
        >>> heartbeat.is_due()
        True
        >>> heartbeat.reported()
        >>> heartbeat.is_due()
        False
    """

    def __init__(self, deadline_seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_seconds = None if deadline_seconds is None else deadline_seconds / REPORTS_PER_DEADLINE
        self._clock = clock
        self._reported_at = clock()

    def is_due(self) -> bool:
        """Whether a quarter of the deadline has passed since the last report. Cheap."""
        return self._interval_seconds is not None and self._clock() - self._reported_at >= self._interval_seconds

    def reported(self) -> None:
        """A report was sent, or tried."""
        self._reported_at = self._clock()
