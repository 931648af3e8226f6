"""Pushes what the ledger says to the operator, from a thread of its own, so that its waiting holds nobody up."""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from wattloop.errors import OperationError
from wattloop.node_energy import GpuBounds, NodeAnswer, NodeGpu, NodeReport, PodGpuUsage
from wattloop_agent.monitor.push.backoff import wait_seconds
from wattloop_agent.monitor.push.pages import pages

logger = logging.getLogger(__name__)

# How soon an end is told: an attempt's outcome waits for it.
END_SECONDS = 1.0


class EnergyLedger(Protocol):
    """What is told, and forgotten once the operator keeps it. Used from the pusher's thread."""

    @property
    def id(self) -> str:
        """The ledger's: under another one numbers start anew."""
        ...

    def usages(self) -> tuple[PodGpuUsage, ...]:
        """What pods use, and have used until they are forgotten."""
        ...

    def gpus(self) -> tuple[NodeGpu, ...]:
        """What each GPU has used."""
        ...

    def forget(self, pod_uids: Iterable[str]) -> None:
        """Forget what these pods have used of GPUs that they have given back."""
        ...


class BoundsKeeper(Protocol):
    """Where the guard rails go that the operator tells. Used from the pusher's thread."""

    def replace(self, bounds: Sequence[GpuBounds]) -> None:
        """Make these the bounds from now on."""
        ...


class NodeApi(Protocol):
    """Where reports go."""

    def send(self, report: NodeReport) -> NodeAnswer:
        """Deliver a report.

        Raises:
            OperationError: It was not taken in.
        """
        ...


@dataclass(frozen=True)
class PushState:
    """How pushing goes.

    Attributes:
        delivered_seconds: When a push was last taken in whole, on the monotonic clock; None: never.
        failures: How many pushes have failed since the agent started.
        problem: Why the last one failed; empty: it did not.
    """

    delivered_seconds: float | None = None
    failures: int = 0
    problem: str = ""


class Pusher:
    """Tells the operator again and again all that the ledger says.

    Args:
        api: The operator's.
        node: The Kubernetes node that this is.
        ledger: What is told.
        bounds: Where the guard rails go.
        interval_seconds: How often.
        clock: Monotonic seconds.
        chance: Draws a number from 0 to 1.

    Attributes:
        state: How it goes.
    """

    def __init__(
        self,
        api: NodeApi,
        node: str,
        ledger: EnergyLedger,
        bounds: BoundsKeeper,
        interval_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._api = api
        self._node = node
        self._ledger = ledger
        self._bounds = bounds
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._chance = chance
        self._sequence = itertools.count(1)
        self._failures_in_a_row = 0
        self._told_ends: frozenset[tuple[str, str, str]] = frozenset()
        self._ending = threading.Event()
        # A daemon: an operator that does not answer must not keep an agent from ending.
        self._thread = threading.Thread(target=self._run, name="push", daemon=True)
        self.state = PushState()

    def start(self) -> None:
        """Push until stopped."""
        self._thread.start()

    def stop(self) -> None:
        """Push no more; what is under way is left behind, for whatever is lost of it is told again."""
        self._ending.set()

    def push(self) -> float:
        """Tell all once, and do as the answers say; returns after how many seconds to do so again."""
        problem = ""
        try:
            self._tell_all()
        except OperationError as error:
            problem = str(error)
        except Exception as error:
            # Whatever it is, the next push may go well; an agent that tells nothing any more would be worse.
            logger.exception("a push failed in a way that nobody foresaw")
            problem = f"{type(error).__name__}: {error}"
        self._note(problem)
        return wait_seconds(self._interval_seconds, self._failures_in_a_row, self._chance())

    def _tell_all(self) -> None:
        ledger, gpus, usages = self._said()
        for page in pages(usages):
            answer = self._api.send(NodeReport(self._node, ledger, next(self._sequence), gpus, page))
            # No pod but those on this page: what was not told cannot be kept.
            self._ledger.forget({each.pod_uid for each in page}.intersection(answer.acknowledged))
            if answer.bounds is not None:
                self._bounds.replace(answer.bounds)
        self._told_ends = _ends(usages)

    def _said(self) -> tuple[str, tuple[NodeGpu, ...], tuple[PodGpuUsage, ...]]:
        """What the ledger says, with its id: told under another one, the same numbers would count twice."""
        while True:
            ledger, gpus, usages = self._ledger.id, self._ledger.gpus(), self._ledger.usages()
            if self._ledger.id == ledger:
                return ledger, gpus, usages

    def _note(self, problem: str) -> None:
        before = self.state
        if problem:
            self._failures_in_a_row += 1
            self.state = PushState(before.delivered_seconds, before.failures + 1, problem)
        else:
            self._failures_in_a_row = 0
            self.state = PushState(self._clock(), before.failures)
        if problem and not before.problem:
            told = {"node": self._node, "problem": problem}
            logger.warning("the operator is not reached; energy is kept and told when it is", extra=told)
        elif before.problem and not problem:
            logger.info("the operator is reached again", extra={"node": self._node})

    def _run(self) -> None:
        while not self._ending.is_set():
            self._wait(self.push())

    def _wait(self, seconds: float) -> None:
        until = self._clock() + seconds
        while (left := until - self._clock()) > 0 and not self._ending.wait(min(left, END_SECONDS)):
            if not self._failures_in_a_row and _ends(self._ledger.usages()) - self._told_ends:
                return


def _ends(usages: Iterable[PodGpuUsage]) -> frozenset[tuple[str, str, str]]:
    return frozenset(usage.key for usage in usages if usage.ended)
