"""Looks at all GPUs at a pace, so that neither a scrape nor a subscriber ever waits for the driver, or costs a call.

What power is, is cheap to ask; a counter of energy is not (an H200's: 3 to 15 ms of the driver's CPU time). So a look
asks for power, and for the counters that are due.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from wattloop_agent.monitor.energy.samples import GpuSample
from wattloop_agent.monitor.gpu_condition import GpuCondition
from wattloop_agent.request_error import RequestError

logger = logging.getLogger(__name__)

# Limits and clocks, which change seldom.
CONDITIONS_SECONDS = 1.0
# A look may come so much before it is due: the timers of two threads are no one clock.
EARLY = 0.2


class SampledGpus(Protocol):
    """What is looked at. Every method raises `RequestError` with what the driver says."""

    def samples(self, uuids: Collection[str] | None = None, uncounted: Collection[str] = ()) -> list[GpuSample]:
        """Counters and power of these GPUs, in as few calls as can be; None: of all. Of the uncounted power alone."""

    def conditions(self, samples: Sequence[GpuSample] | None = None) -> list[GpuCondition]:
        """All that is known of all GPUs, with these samples of all; None: take them."""


class Watch:
    """Someone who waits for looks at some GPUs, at an interval of its own."""

    def __init__(self, gpus: Collection[str], interval_seconds: float) -> None:
        self.gpus = gpus
        self.interval_seconds = interval_seconds
        self.loop = asyncio.get_running_loop()
        self._due_seconds = time.monotonic() + interval_seconds
        self._looked = asyncio.Event()

    async def next(self) -> None:
        """Wait for the next look that is due."""
        await self._looked.wait()
        self._looked.clear()

    def is_due(self, now_seconds: float) -> bool:
        """Whether a look at this moment is for it."""
        return now_seconds >= self._due_seconds - self.interval_seconds * EARLY

    def tell(self, taken_seconds: float) -> None:
        """There was a look that is for it."""
        self._due_seconds = max(self._due_seconds + self.interval_seconds, taken_seconds)
        self._looked.set()


class Sampler:
    """Keeps the newest readings of all GPUs.

    Args:
        gpus: What is looked at.
        pace: Told how often to call `look`; None: not at all.

    Attributes:
        samples: By uuid, what was seen last; none where the driver does not answer.
        counted: By uuid, the last of them that tells the counter.
        conditions: All else that was known, at most about `CONDITIONS_SECONDS` old.
        taken_seconds: When the last look at all GPUs was, on the monotonic clock; None: there was none.
        problem: Why the last look failed; empty: it did not.
    """

    def __init__(self, gpus: SampledGpus, pace: Callable[[float | None], None]) -> None:
        self._gpus = gpus
        self._pace = pace
        self._interval_seconds: float | None = None
        self._take: Callable[[Sequence[GpuSample]], None] | None = None
        self._watches: tuple[Watch, ...] = ()
        self._all_due_seconds = 0.0
        self._counter_interval_seconds = 0.0
        # By uuid, when its counter is to be read again; of whom it is not known, now.
        self._counter_due_seconds: dict[str, float] = {}
        self._counters_now = False
        self._conditions_due_seconds = 0.0
        self.samples: Mapping[str, GpuSample] = {}
        self.counted: Mapping[str, GpuSample] = {}
        self.conditions: Sequence[GpuCondition] = ()
        self.taken_seconds: float | None = None
        self.problem = ""

    def start(
        self,
        interval_seconds: float,
        take: Callable[[Sequence[GpuSample]], None] | None = None,
        counter_interval_seconds: float = 0.0,
    ) -> None:
        """Look at this interval at least, from now on.

        Args:
            interval_seconds: How often.
            counter_interval_seconds: How often at least a look reads a GPU's counter; 0: each look reads all. The
                GPUs take turns, so that no look takes long.
            take: Called with what each look at all GPUs saw, in its thread; nothing where the driver does not answer.
        """
        self._interval_seconds = interval_seconds
        self._take = take
        self._counter_interval_seconds = counter_interval_seconds
        self._set_pace()

    def read_counters(self) -> None:
        """Read all counters at the next look at all GPUs; from any thread."""
        self._counters_now = True

    @contextlib.contextmanager
    def watching(self, gpus: Collection[str], interval_seconds: float) -> Iterator[Watch]:
        """Look at these GPUs at least as often for the time of a block; on the event loop."""
        watch = Watch(gpus, interval_seconds)
        self._watches = (*self._watches, watch)
        self._set_pace()
        try:
            yield watch
        finally:
            self._watches = tuple(each for each in self._watches if each is not watch)
            self._set_pace()

    def look(self) -> None:
        """Take the look that is due, in the thread that asks the driver: at all GPUs, or at those that are watched."""
        now = time.monotonic()
        interval = self._interval_seconds
        at_all = interval is not None and now >= self._all_due_seconds - interval * EARLY
        watches = [watch for watch in self._watches if watch.is_due(now)]
        if at_all and interval is not None:
            self._all_due_seconds = max(self._all_due_seconds + interval, now + interval / 2)
        elif not watches:
            return
        watched = {uuid for watch in watches for uuid in watch.gpus}
        samples = self._looked(now, None, watched) if at_all else self._looked(now, watched, watched)
        if at_all and self._take is not None:
            self._take(samples)
        if watches:
            with contextlib.suppress(RuntimeError):
                # Else the loop has ended, and with it who watched.
                watches[0].loop.call_soon_threadsafe(_tell_all, watches, now)

    def _looked(self, now: float, uuids: Collection[str] | None, watched: Collection[str]) -> list[GpuSample]:
        if uuids is None and self._counters_now:
            self._counters_now = False
            self._counter_due_seconds = {}
        resting = {uuid for uuid, due in self._counter_due_seconds.items() if now < due - self._early_seconds()}
        uncounted = resting - set(watched)
        try:
            samples = self._gpus.samples(uuids, uncounted)
            if uuids is None and now >= self._conditions_due_seconds:
                self._conditions_due_seconds = now + CONDITIONS_SECONDS * (1 - EARLY)
                self.conditions = self._gpus.conditions(samples)
        except RequestError as refusal:
            self.samples, self.counted = {}, {}
            self._counter_due_seconds = {}
            self._tell(refusal.message)
            return []
        seen = {sample.uuid: sample for sample in samples}
        if uuids is None:
            self.taken_seconds = now
        else:
            seen = {**self.samples, **seen}
        asked = {sample.uuid: sample for sample in samples if sample.uuid not in uncounted or sample.problem}
        counted = {uuid: sample for uuid, sample in self.counted.items() if uuid in seen} | asked
        # In this order: who sees in another thread that a GPU has failed finds no old counter of it.
        self.counted = {uuid: sample for uuid, sample in counted.items() if sample.counter_millijoules is not None}
        self.samples = seen
        if uuids is None:
            # What is read for a watch in between is not accounted for.
            self._next_counters(now, [each for each in asked.values() if each.uuid not in resting or each.problem])
        self._tell("")
        return samples

    def _early_seconds(self) -> float:
        return min(self._interval_seconds or 0.0, self._counter_interval_seconds) * EARLY

    def _next_counters(self, now: float, asked: Sequence[GpuSample]) -> None:
        interval, due = self._counter_interval_seconds, self._counter_due_seconds
        for number, sample in enumerate(asked, start=1):
            if sample.problem:
                due.pop(sample.uuid, None)
            elif sample.uuid in due:
                due[sample.uuid] = max(due[sample.uuid] + interval, now + interval / 2)
            else:
                due[sample.uuid] = now + interval * number / len(asked)

    def _set_pace(self) -> None:
        intervals = [watch.interval_seconds for watch in self._watches]
        if self._interval_seconds is not None:
            intervals.append(self._interval_seconds)
        self._pace(min(intervals, default=None))

    def _tell(self, problem: str) -> None:
        if problem != self.problem:
            logger.log(logging.ERROR if problem else logging.INFO, "readings", extra={"problem": problem or "none"})
        self.problem = problem


def _tell_all(watches: Sequence[Watch], taken_seconds: float) -> None:
    for watch in watches:
        watch.tell(taken_seconds)
