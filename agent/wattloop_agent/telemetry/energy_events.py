"""Energy as server-sent events, for tools: each says all that the ledger says, so that a missed one loses nothing."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from wattloop_agent.monitor.energy.ledger import Ledger, LedgerState

PATH = "/v1/energy/events"
# Each takes a thread while it reads.
SUBSCRIBERS_LIMIT = 16
MAX_SUBSCRIBERS_OF_AN_ADDRESS = 4
INTERVAL_SECONDS = 5.0
MIN_INTERVAL_SECONDS = 1.0
MAX_INTERVAL_SECONDS = 60.0
RETRY_MILLISECONDS = 2000


class Response(Protocol):
    """The part of an HTTP request's handler that a stream needs; it raises `OSError` once the caller is gone."""

    def begin(self, status: int, headers: dict[str, str]) -> None:
        """Send status and headers."""
        ...

    def send(self, data: bytes) -> None:
        """Send a part of the body."""
        ...

    def leave_requests(self) -> None:
        """Free the connection's place among the requests, and its deadline: a stream has a place of its own."""
        ...


class EnergyEvents:
    """Streams what the ledger says to a bounded number of subscribers.

    Args:
        ledger: What is told.
        clock: Seconds since the epoch. Events are numbered by it, so that ids rise over restarts, too; while the agent
            runs they do where it is set back, as well. Nothing else in agent and client goes by the wall clock.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.time) -> None:
        self._ledger = ledger
        self._clock = clock
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._number = 0
        self._by_address: Counter[str] = Counter()

    @property
    def subscribers(self) -> int:
        """How many read now."""
        return self._by_address.total()

    def stream(self, target: str, address: str, response: Response) -> None:
        """Answer a request for events until the caller or the agent ends.

        Nothing has to be looked up for a caller that comes back with ``Last-Event-ID``: the first event says it all.

        Args:
            target: The request's path and query.
            address: The client's, without its port.
            response: Where the answer goes.

        Raises:
            OSError: The caller is gone.
        """
        try:
            interval = _interval(target)
        except ValueError as error:
            _refuse(response, 400, str(error))
            return
        refusal = self._refusal_of(address)
        if refusal is not None:
            _refuse(response, 503, refusal)
            return
        try:
            response.leave_requests()
            response.begin(200, {"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
            response.send(f"retry: {RETRY_MILLISECONDS}\n\n".encode())
            response.send(self._event())
            while not self._ending.wait(interval):
                response.send(self._event())
        finally:
            with self._lock:
                self._by_address -= Counter([address])

    def close(self) -> None:
        """End all streams."""
        self._ending.set()

    def _refusal_of(self, address: str) -> str | None:
        """Why there is no place for one more of this address; None: there was, and it is taken."""
        with self._lock:
            if self.subscribers >= SUBSCRIBERS_LIMIT:
                return f"{SUBSCRIBERS_LIMIT} subscribers read already; try again"
            if self._by_address[address] >= MAX_SUBSCRIBERS_OF_AN_ADDRESS:
                return f"{MAX_SUBSCRIBERS_OF_AN_ADDRESS} subscribers of {address} read already; end one"
            self._by_address[address] += 1
            return None

    def _event(self) -> bytes:
        said = self._ledger.read(_said)
        with self._lock:
            self._number = max(self._number + 1, int(self._clock() * 1000))
            number = self._number
        return f"id: {number}\nevent: energy\ndata: {json.dumps(said, allow_nan=False)}\n\n".encode()


def _said(state: LedgerState) -> dict[str, object]:
    # At once: under another ledger's id the same numbers would count twice.
    return {
        "ledger": state.id,
        "gpus": [asdict(account.to_wire()) for account in state.accounts.values()],
        "usages": [asdict(interval.to_wire()) for interval in state.intervals.values()],
    }


def _interval(target: str) -> float:
    texts = parse_qs(urlsplit(target).query).get("interval_seconds", [str(INTERVAL_SECONDS)])
    try:
        seconds = float(texts[-1])
    except ValueError:
        seconds = -1.0
    if not MIN_INTERVAL_SECONDS <= seconds <= MAX_INTERVAL_SECONDS:
        raise ValueError(
            f"interval_seconds: found {texts[-1][:80]!r}, expected a number from {MIN_INTERVAL_SECONDS:g} to "
            f"{MAX_INTERVAL_SECONDS:g}"
        )
    return seconds


def _refuse(response: Response, status: int, told: str) -> None:
    headers = {"Content-Type": "text/plain; charset=utf-8"} | ({"Retry-After": "5"} if status == 503 else {})
    response.begin(status, headers)
    response.send(f"{told}\n".encode())
