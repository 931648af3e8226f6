"""Whether the database answers, asked every 2 s by a thread of its own, so that no probe waits for the database."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Self

from wattloop.errors import OperationError
from wattloop_operator.periodic_thread import PeriodicThread

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 2.0
# A request to a machine that is gone fails after half a minute; readiness must know before.
MAX_ANSWER_SECONDS = 7.0
STOP_SECONDS = 1.0


class DatabaseCheck(PeriodicThread):
    """Asks a database again and again; a context manager, which starts and ends its thread.

    Args:
        ask: Asks the database once.
        name: Its name, for messages.
        clock: Monotonic seconds.
    """

    def __init__(self, ask: Callable[[], object], name: str, clock: Callable[[], float] = time.monotonic) -> None:
        # A request to a machine that is gone is not waited for.
        super().__init__(self.ask, "database-check", INTERVAL_SECONDS, STOP_SECONDS)
        self._ask = ask
        self._name = name
        self._clock = clock
        self._answered_at = clock()
        self._failure = ""

    def __enter__(self) -> Self:
        self._answered_at = self._clock()
        return super().__enter__()

    def problem(self) -> str:
        """Why the database cannot be used now; empty if it can."""
        silent = self._clock() - self._answered_at
        if silent > MAX_ANSWER_SECONDS:
            return f"{self._name}: no answer for {silent:.0f} s; check the load of its server and the network between"
        return self._failure

    def ask(self) -> None:
        """Ask once, and log a change."""
        try:
            self._ask()
        except OperationError as error:
            failure = str(error)
        except Exception as error:  # a restart does not help
            failure = f"{self._name}: unexpected failure: {type(error).__name__}"
            if not self._failure:
                logger.exception("%s: unexpected failure of the check", self._name)
        else:
            failure = ""
        if failure and not self._failure:
            logger.warning("%s; agents and pipelines repeat their reports until it answers", failure)
        elif self._failure and not failure:
            logger.info("%s: the database answers", self._name)
        self._failure, self._answered_at = failure, self._clock()
