"""Delivering reports over HTTP without ever holding up the training.

A report that cannot be delivered is not kept: the next one says all that it said. After a failure, further attempts
wait, at most half a minute apart, so that an operator that is away costs a training step nothing; only the last report
of a run is worth waiting for. Where the operator says when to come again (429 or 503 with Retry-After), that is when
the newest report is sent again.
"""

from __future__ import annotations

import http.client
import json
import logging
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from wattloop.messages import Answer, Report

logger = logging.getLogger("wattloop")

TIMEOUT_SECONDS = 5.0
FIRST_WAIT_SECONDS = 1.0
MAX_WAIT_SECONDS = 30.0
MAX_ANSWER_BYTES = 64 * 1024
# Refusals that the same report may not meet again: a token just rotated, a server that is busy.
PASSING_REFUSALS = frozenset({401, 408, 425, 429})
# Refusals by a server that is there and says when it accepts the next request.
REFUSALS_WITH_A_TIME = frozenset({429, 503})


class ReportChannel:
    """Sends the reports of one attempt to the reporting API.

    Args:
        url: Address of the recurrence at the reporting API; empty: reports go nowhere.
        token_file: File with the bearer token, read anew for each report because Kubernetes rotates it.
        certificate_authority_file: Certificates that the server is checked against; empty: the system's.
        clock: Monotonic seconds.
        sleep: Waits for seconds.
    """

    def __init__(
        self,
        url: str,
        token_file: str = "",
        certificate_authority_file: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = url.rstrip("/")
        self._token_file = token_file
        self._certificate_authority_file = certificate_authority_file
        self._clock = clock
        self._sleep = sleep
        self._wait_seconds = 0.0
        self._next_attempt = -float("inf")
        self._refused_for_good = False
        self._waiting: Report | None = None

    def send(self, report: Report) -> Answer | None:
        """Deliver a report, or give up at once where delivery failed a moment ago.

        Returns:
            The answer, or None where the report was not delivered; the next one will say all that it said.
        """
        if not self._url:
            return None
        if self._clock() < self._next_attempt:
            # Of the reports that wait the newest is enough: it says all that the others say.
            self._waiting = None if self._waiting is None else report
            return None
        try:
            answer = self._post(report)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            self._refused_for_good = isinstance(error, urllib.error.HTTPError) and _for_good(error.code)
            told = _told_to_wait(error)
            self._waiting = None if told is None else report
            doubled = max(2 * self._wait_seconds, FIRST_WAIT_SECONDS)
            self._wait_seconds = min(doubled if told is None else told, MAX_WAIT_SECONDS)
            self._next_attempt = self._clock() + self._wait_seconds
            logger.warning(
                "report %d of %s was not delivered (%s); training goes on, the next report says it again",
                report.sequence,
                self._url,
                _described(error),
            )
            return None
        self._wait_seconds = 0.0
        self._waiting = None
        return answer

    def send_waiting(self) -> Answer | None:
        """Send the report that a server asked to have later, once that time has come; cheap where there is none.

        Returns:
            The answer, or None where nothing was delivered.
        """
        if self._waiting is None or self._clock() < self._next_attempt:
            return None
        return self.send(self._waiting)

    def send_last(self, report: Report, timeout_seconds: float) -> Answer | None:
        """Deliver the last report, trying again until the timeout.

        Args:
            report: The last report.
            timeout_seconds: How long to go on trying.

        Returns:
            The answer, or None where it could not be delivered or was refused for good.
        """
        give_up = self._clock() + timeout_seconds
        self._next_attempt = -float("inf")
        while True:
            answer = self.send(report)
            if answer is not None or not self._url or self._refused_for_good:
                return answer
            if self._clock() + self._wait_seconds >= give_up:
                return None
            self._sleep(self._wait_seconds)

    def _post(self, report: Report) -> Answer:
        headers = {"Content-Type": "application/json"}
        if self._token_file:
            headers["Authorization"] = f"Bearer {Path(self._token_file).read_text(encoding='ascii').strip()}"
        request = urllib.request.Request(  # noqa: S310  the opener below knows http and https alone
            f"{self._url}/progress",
            data=json.dumps(report.to_json(), allow_nan=False).encode(),
            headers=headers,
            method="POST",
        )
        if request.type not in ("http", "https"):
            raise ValueError(f"found the scheme {request.type}, expected http or https in WATTLOOP_REPORT_URL")
        with self._opener(request.type).open(request, timeout=TIMEOUT_SECONDS) as response:
            return Answer.from_json(json.loads(response.read(MAX_ANSWER_BYTES)))

    def _opener(self, scheme: str) -> urllib.request.OpenerDirector:
        # No redirect handler and no proxy: the token goes to the operator and to nobody else. Made for each report:
        # the certificates may be rotated as the token is, and where they are missing only this report is lost.
        handlers: list[urllib.request.BaseHandler] = [
            urllib.request.HTTPErrorProcessor(),
            urllib.request.HTTPDefaultErrorHandler(),
        ]
        if scheme == "https":
            context = ssl.create_default_context(cafile=self._certificate_authority_file or None)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        else:
            handlers.append(urllib.request.HTTPHandler())
        opener = urllib.request.OpenerDirector()
        for handler in handlers:
            opener.add_handler(handler)
        return opener


def _told_to_wait(error: Exception) -> float | None:
    """After how many seconds the server accepts the next report; None where it does not say."""
    if not isinstance(error, urllib.error.HTTPError) or error.code not in REFUSALS_WITH_A_TIME:
        return None
    told = error.headers.get("Retry-After", "")
    # The other form, a date, depends on two clocks; without a number the wait is this client's own.
    return float(max(int(told[:9]), FIRST_WAIT_SECONDS)) if told.isascii() and told.isdecimal() else None


def _for_good(code: int) -> bool:
    return code < 500 and code not in PASSING_REFUSALS


def _described(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        with error:
            try:
                text = error.read(512).decode("utf-8", "replace")
            except (OSError, http.client.HTTPException):  # its status is known, its words are lost
                text = ""
        return f"HTTP {error.code} {error.reason}{': ' if text else ''}{text}"
    return str(error) or type(error).__name__
