"""The ledger of a node's energy: what each GPU has used and whose that was, all cumulative.

Pure but for a lock: the sampler's thread writes into it, the event loop and the metrics' threads read it.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from wattloop.node_energy import NodeGpu, PodGpuUsage
from wattloop_agent.monitor.energy.account import GpuAccount
from wattloop_agent.monitor.energy.attribution import (
    AWAY_SECONDS,
    Around,
    Assignment,
    Key,
    Observation,
    UsageInterval,
    bounded,
    observed,
)
from wattloop_agent.monitor.energy.counter_reset import CounterReset
from wattloop_agent.monitor.energy.gpu_sample import GpuSample
from wattloop_agent.monitor.energy.snapshot import EnergySnapshot

logger = logging.getLogger(__name__)

# An observation waits for the counters' next step, so that its moment lies between two of them.
STEP_SECONDS = 0.2
WAITING_LIMIT = 64
Read = TypeVar("Read")


@dataclass
class LedgerState:
    """All that a ledger knows, and that its file keeps.

    Attributes:
        id: Made at random with the ledger: under another id numbers start anew.
        accounts: By uuid.
        spans: Whose the energy was, oldest first.
        known: By uuid, the account when the last observation began.
        observed_seconds: When that was, on the monotonic clock; None: never, or in another boot.
        dropped: How many ended spans were dropped because there were too many.
        driver: Which load of the driver the counters are of; None: not known.
        resumed: It was read from its file in the boot that wrote it, and no sample was taken since.
    """

    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    accounts: dict[str, GpuAccount] = field(default_factory=dict)
    spans: dict[Key, UsageInterval] = field(default_factory=dict)
    known: dict[str, EnergySnapshot] = field(default_factory=dict)
    observed_seconds: float | None = None
    dropped: int = 0
    driver: str | None = None
    resumed: bool = False


class Ledger:
    """What is asked and told of a `LedgerState`, from any thread."""

    def __init__(self, book: LedgerState | None = None) -> None:
        self._book = book or LedgerState()
        self._lock = threading.Lock()
        self._waiting: deque[Observation] = deque(maxlen=WAITING_LIMIT)

    @property
    def id(self) -> str:
        """The ledger's: under another one numbers start anew, and add up."""
        return self._book.id

    def usages(self) -> tuple[PodGpuUsage, ...]:
        """What pods use, and have used until they are forgotten; an entry a (pod uid, container, GPU)."""
        with self._lock:
            return tuple(span.wire() for span in self._book.spans.values())

    def gpus(self) -> tuple[NodeGpu, ...]:
        """What each GPU has used since the ledger began."""
        with self._lock:
            return tuple(account.wire() for account in self._book.accounts.values())

    def resets(self) -> dict[str, int]:
        """By uuid, how often the GPU's counter began anew since the ledger began."""
        with self._lock:
            return {uuid: account.resets for uuid, account in self._book.accounts.items()}

    def dropped(self) -> int:
        """How many usages of ended pods were dropped because there were too many."""
        return self._book.dropped

    def forget(self, pod_uids: Iterable[str]) -> None:
        """Forget what these pods have used of GPUs that they have given back: it is kept elsewhere."""
        forgotten = set(pod_uids)
        with self._lock:
            spans = self._book.spans
            for key in [key for key, span in spans.items() if span.ended and key[0] in forgotten]:
                del spans[key]

    def assigned(self) -> tuple[Assignment, ...]:
        """Who has which GPU, by the last observation."""
        with self._lock:
            return tuple(span.assignment for span in self._book.spans.values() if not span.ended)

    def replace(self, book: LedgerState) -> None:
        """Go on with another book."""
        with self._lock:
            self._book = book
            self._waiting.clear()

    def read(self, reading: Callable[[LedgerState], Read]) -> Read:
        """What this makes of the book, while nobody writes into it."""
        with self._lock:
            return reading(self._book)

    def observe(self, observation: Observation) -> None:
        """Take note of who has which GPU; observations come in order of time."""
        with self._lock:
            self._waiting.append(observation)

    def sample(self, samples: Sequence[GpuSample], now_seconds: float, driver: str | None = None) -> bool:
        """Take a look at all GPUs; returns whether it has changed who has what.

        Args:
            samples: Of each GPU that answered.
            now_seconds: The monotonic clock, not before any of the samples.
            driver: Which load of the driver they are of; None: it is not known.
        """
        with self._lock:
            if samples:
                self._note_driver(driver)
            for sample in samples:
                self._add(sample)
            changed = False
            while self._waiting and self._waiting[0].end_seconds + STEP_SECONDS <= now_seconds:
                changed = self._observed(self._waiting.popleft()) or changed
            return changed

    def _note_driver(self, driver: str | None) -> None:
        """A counter of another load of the driver began anew, whatever it says by now."""
        book = self._book
        anew = CounterReset.PERHAPS if book.resumed else CounterReset.NO
        if driver is not None and book.driver is not None:
            anew = CounterReset.YES if driver != book.driver else CounterReset.NO
        if anew is not CounterReset.NO:
            for account in book.accounts.values():
                account.counter_began(anew)
        book.driver, book.resumed = driver or book.driver, False

    def _add(self, sample: GpuSample) -> None:
        accounts = self._book.accounts
        account = accounts.get(sample.uuid)
        if account is None:
            account = accounts[sample.uuid] = GpuAccount(sample.uuid, sample.product)
        resets = account.resets
        account.add(sample)
        if account.resets > resets:
            logger.warning(
                "energy counter began anew: energy of the gap is estimated from power",
                extra={"gpu": sample.uuid, "counter_millijoules": sample.counter_millijoules},
            )

    def _observed(self, observation: Observation) -> bool:
        book = self._book
        around = {uuid: self._around(uuid, observation) for uuid in book.accounts}
        around |= {uuid: self._missed(uuid, around[uuid], began) for uuid, began in self._overlooked(observation)}
        before = {key: span.ended for key, span in book.spans.items()}
        spans, dropped = bounded(observed(book.spans, observation.assignments, around))
        book.spans = {span.assignment.key: span for span in spans}
        book.known = {uuid: at.begin for uuid, at in around.items()}
        book.observed_seconds = observation.begin_seconds
        if dropped:
            book.dropped += dropped
            logger.error("ledger full: the oldest pods' energy was dropped untold", extra={"usages": dropped})
        return before != {key: span.ended for key, span in book.spans.items()}

    def _overlooked(self, observation: Observation) -> list[tuple[str, float]]:
        """GPUs of pods that ran before the last look, which did not see them, with when their first process began.

        A kubelet that starts again lists some pods later than others.
        """
        since = self._book.observed_seconds
        found = []
        for each in observation.assignments:
            began = observation.first_processes.get(each.pod_uid)
            if since is None or began is None or began >= since or each.gpu not in self._book.accounts:
                continue
            span = self._book.spans.get(each.key)
            if span is None or span.ended:
                found.append((each.gpu, began))
        return found

    def _missed(self, uuid: str, around: Around, began_seconds: float) -> Around:
        """The same where who is new may have had the GPU since its first process began."""
        low, high = around.starts
        begun = self._book.accounts[uuid].mark_before(began_seconds)
        return replace(around, starts=(begun if begun.energy_millijoules < low.energy_millijoules else low, high))

    def _around(self, uuid: str, observation: Observation) -> Around:
        account = self._book.accounts[uuid]
        begin, high = account.mark_at(observation.begin_seconds), account.mark_at(observation.end_seconds)
        low = self._book.known.get(uuid)
        if low is None:
            high = high.not_before(begin)
            return Around((begin, high), (begin, high), begin)
        begin = begin.not_before(low)
        high = high.not_before(begin)
        since = self._book.observed_seconds
        if since is None:
            # All that has run since another boot's end began after it.
            oldest = account.oldest().not_before(low)
            return Around((low, oldest), (oldest, high), begin, away=True)
        return Around((low, high), (low, high), begin, away=observation.end_seconds - since > AWAY_SECONDS)
