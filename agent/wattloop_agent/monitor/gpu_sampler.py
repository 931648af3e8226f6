"""Samples all GPUs periodically, so that scrapes and subscribers cost the driver no call.

Reading power is cheap; reading an energy counter is not (3 to 15 ms of CPU time in an H200's
driver). So a sample reads power, and only the counters that are due.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from wattloop.energy.gpu_reading import GpuReading
from wattloop_agent.refusals import RequestError


@dataclass(frozen=True)
class GpuStatus:
    """The current state of a GPU, as metrics and `wattloop monitor` show it; None: it does not report that.

    Attributes:
        name: Its model.
        time_seconds: The clock that its energy is integrated on.
        energy_millijoules: Its cumulative counter.
        power_limit_watts: The limit that is set; another may be in force.
        problem: Why a value is missing although the GPU supports it; empty: none is.
        max_power_limit_watts: The highest limit that it accepts.
        is_partitioned: Whether MIG is enabled on it, as last reported.
    """

    uuid: str
    name: str
    time_seconds: float
    energy_millijoules: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    enforced_power_limit_watts: float | None = None
    graphics_clock_megahertz: float | None = None
    problem: str = ""
    max_power_limit_watts: float | None = None
    is_partitioned: bool = False


class SampledGpus(Protocol):
    """The part of `NvmlReadings` that the sampler uses."""

    def samples(self, uuids: Collection[str] | None = None, uncounted: Collection[str] = ()) -> list[GpuReading]:
        """Counters and power."""

    def statuses(self, samples: Sequence[GpuReading] | None = None) -> list[GpuStatus]:
        """Statuses."""


logger = logging.getLogger(__name__)

# For limits and clocks, which rarely change.
STATUS_SECONDS = 1.0
# The fraction of its interval by which a sample may be early, since the timers of two threads differ.
EARLY_FRACTION = 0.2


class SampleSubscription:
    """A request for samples of some GPUs at an interval."""

    def __init__(self, gpus: Collection[str], interval_seconds: float) -> None:
        self.gpus = gpus
        self.interval_seconds = interval_seconds
        self.loop = asyncio.get_running_loop()
        self._due_seconds = time.monotonic() + interval_seconds
        self._sampled = asyncio.Event()

    async def next(self) -> None:
        """Wait for the next sample that is due."""
        await self._sampled.wait()
        self._sampled.clear()

    def is_due(self, now_seconds: float) -> bool:
        """Whether it needs a sample at this moment."""
        return now_seconds >= self._due_seconds - self.interval_seconds * EARLY_FRACTION

    def notify(self, sampled_seconds: float) -> None:
        """Report that its sample was taken."""
        self._due_seconds = max(self._due_seconds + self.interval_seconds, sampled_seconds)
        self._sampled.set()


class Sampler:
    """Keeps the newest readings of all GPUs.

    Args:
        gpus: The GPUs.
        set_interval: Called with the interval at which `sample` must be called; None: not at all.

    Attributes:
        samples: By uuid, the newest sample; empty where the driver does not answer.
        counted: By uuid, the newest sample with a counter, or with the power of this moment if the GPU has none.
        statuses: The newest statuses, at most about `STATUS_SECONDS` old.
        sampled_seconds: Time of the newest sample of all GPUs, on the monotonic clock; None: there was none.
        problem: Why the last sample failed; empty: it did not.
    """

    def __init__(self, gpus: SampledGpus, set_interval: Callable[[float | None], None]) -> None:
        self._gpus = gpus
        self._set_interval = set_interval
        self._interval_seconds: float | None = None
        self._on_sample: Callable[[Sequence[GpuReading]], None] | None = None
        self._subscriptions: tuple[SampleSubscription, ...] = ()
        self._all_due_seconds = 0.0
        self._counter_interval_seconds = 0.0
        # By uuid, when its counter is read next; a GPU without an entry is read now.
        self._counter_due_seconds: dict[str, float] = {}
        self._counters_now = False
        self._statuses_due_seconds = 0.0
        self.samples: Mapping[str, GpuReading] = {}
        self.counted: Mapping[str, GpuReading] = {}
        self.statuses: Sequence[GpuStatus] = ()
        self.sampled_seconds: float | None = None
        self.problem = ""

    def start(
        self,
        interval_seconds: float,
        on_sample: Callable[[Sequence[GpuReading]], None] | None = None,
        counter_interval_seconds: float = 0.0,
    ) -> None:
        """Sample all GPUs from now on.

        Args:
            interval_seconds: The longest time between two samples.
            on_sample: Called with each sample of all GPUs, in its thread; with none where the driver does not answer.
            counter_interval_seconds: The longest time between two readings of a GPU's counter; 0:
                each sample reads all. The GPUs take turns, so that no sample takes long.
        """
        self._interval_seconds = interval_seconds
        self._on_sample = on_sample
        self._counter_interval_seconds = counter_interval_seconds
        self._update_interval()

    def read_counters(self) -> None:
        """Read all counters at the next sample of all GPUs; from any thread."""
        self._counters_now = True

    @contextlib.contextmanager
    def subscribed(self, gpus: Collection[str], interval_seconds: float) -> Iterator[SampleSubscription]:
        """Sample these GPUs at least this often for the duration of a block; on the event loop."""
        subscription = SampleSubscription(gpus, interval_seconds)
        self._subscriptions = (*self._subscriptions, subscription)
        self._update_interval()
        try:
            yield subscription
        finally:
            self._subscriptions = tuple(each for each in self._subscriptions if each is not subscription)
            self._update_interval()

    def sample(self) -> None:
        """Take the sample that is due, of all GPUs or of those subscribed to."""
        now = time.monotonic()
        interval = self._interval_seconds
        of_all = interval is not None and now >= self._all_due_seconds - interval * EARLY_FRACTION
        subscriptions = [each for each in self._subscriptions if each.is_due(now)]
        if of_all and interval is not None:
            self._all_due_seconds = max(self._all_due_seconds + interval, now + interval / 2)
        elif not subscriptions:
            return
        subscribed = {uuid for subscription in subscriptions for uuid in subscription.gpus}
        samples = self._read(now, None if of_all else subscribed, subscribed)
        if of_all and self._on_sample is not None:
            self._on_sample(samples)
        if subscriptions:
            # RuntimeError: the loop has ended, and its subscribers with it.
            with contextlib.suppress(RuntimeError):
                subscriptions[0].loop.call_soon_threadsafe(_notify_all, subscriptions, now)

    def _read(self, now: float, uuids: Collection[str] | None, subscribed: Collection[str]) -> list[GpuReading]:
        if uuids is None and self._counters_now:
            self._counters_now = False
            self._counter_due_seconds = {}
        early_seconds = min(self._interval_seconds or 0.0, self._counter_interval_seconds) * EARLY_FRACTION
        resting = {uuid for uuid, due in self._counter_due_seconds.items() if now < due - early_seconds}
        uncounted = resting - set(subscribed)
        try:
            samples = self._gpus.samples(uuids, uncounted)
            if uuids is None and now >= self._statuses_due_seconds:
                self._statuses_due_seconds = now + STATUS_SECONDS * (1 - EARLY_FRACTION)
                self.statuses = self._gpus.statuses(samples)
        except RequestError as refusal:
            self.samples, self.counted = {}, {}
            self._counter_due_seconds = {}
            self._set_problem(refusal.message)
            return []
        newest = {sample.uuid: sample for sample in samples}
        if uuids is None:
            self.sampled_seconds = now
        else:
            newest = {**self.samples, **newest}
        read = {sample.uuid: sample for sample in samples if sample.uuid not in uncounted or sample.problem}
        counted = {uuid: sample for uuid, sample in self.counted.items() if uuid in newest} | read
        # In this order, so that a thread that sees that a GPU has failed finds no old counter of it.
        self.counted = {
            uuid: sample
            for uuid, sample in counted.items()
            if sample.energy_millijoules is not None or sample.instant_watts is not None
        }
        self.samples = newest
        if uuids is None:
            # Counters read for a subscription in between do not move the schedule.
            self._schedule_counters(now, [each for each in read.values() if each.uuid not in resting or each.problem])
        self._set_problem("")
        return samples

    def _schedule_counters(self, now: float, read: Sequence[GpuReading]) -> None:
        interval, due = self._counter_interval_seconds, self._counter_due_seconds
        for number, sample in enumerate(read, start=1):
            if sample.problem:
                due.pop(sample.uuid, None)
            elif sample.uuid in due:
                due[sample.uuid] = max(due[sample.uuid] + interval, now + interval / 2)
            else:
                due[sample.uuid] = now + interval * number / len(read)

    def _update_interval(self) -> None:
        intervals = [each.interval_seconds for each in self._subscriptions]
        if self._interval_seconds is not None:
            intervals.append(self._interval_seconds)
        self._set_interval(min(intervals, default=None))

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem:
            logger.log(logging.ERROR if problem else logging.INFO, "readings", extra={"problem": problem or "none"})
        self.problem = problem


def _notify_all(subscriptions: Sequence[SampleSubscription], sampled_seconds: float) -> None:
    for subscription in subscriptions:
        subscription.notify(sampled_seconds)
