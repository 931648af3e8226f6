"""Samples the process's GPUs in a thread, and answers how much energy was used between two moments."""

import atexit
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wattloop.energy.energy_timeline import CounterEdge, EnergyPoint, EnergyTimeline
from wattloop.energy_monitor.readings import OthersTimeline, ProcessorEnergy, Readings, ReadingSource
from wattloop.errors import WattloopError
from wattloop.threads import TaskThread

logger = logging.getLogger("wattloop")

OPEN_SECONDS = 10.0
# The next edges of a counter of 100 ms, and a reading after them.
MAX_WAIT_SECONDS = 0.6
RETRY_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
# Readings are kept for longer than this. Older moments are looked up while their readings exist.
KEPT_SECONDS = 100.0
# Moments looked up after one sample, so that a sample takes no longer than a millisecond or so.
MAX_LOOKED_UP = 50


class Moment:
    """The begin or the end of a window: a time, and the energy until then once it was looked up.

    Attributes:
        seconds: System monotonic clock.
        energy: The energy at that time; None while the readings still exist.
    """

    __slots__ = ("__weakref__", "energy", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.energy: EnergyState | None = None


@dataclass(frozen=True)
class EnergyState:
    """The energy used until a moment.

    Attributes:
        gpus: By UUID; None where nothing is known.
        processors: In joules, by RAPL zone.
    """

    gpus: Mapping[str, EnergyPoint | None]
    processors: Mapping[str, float | None]


class ProcessSampler:
    """Reads a source until it is stopped, and keeps the energy of the last minutes.

    `moment` may be called on a training's path: it takes no lock and calls no driver.

    Args:
        open_source: Makes the source; called in the sampler's thread.

    Attributes:
        uuids: UUIDs of the process's GPUs by CUDA's index; empty until `wait_until_open`.
        problem: Why there are no readings at all; empty if there are.
    """

    def __init__(self, open_source: Callable[[], ReadingSource], clock: Callable[[], float] = time.monotonic) -> None:
        self._open_source = open_source
        self._clock = clock
        self._source: ReadingSource | None = None
        self._timelines: dict[str, EnergyTimeline] = {}
        self._others: dict[str, OthersTimeline] = {}
        self._processors: dict[str, ProcessorEnergy] = {}
        self._selected: tuple[str, ...] = ()
        self._moments: deque[weakref.ref[Moment]] = deque()
        self._sampled = threading.Condition()
        self._opened = threading.Event()
        self._stopping = threading.Event()
        self._thread: TaskThread | None = None
        self._failures = 0
        self._starts_itself = False
        self._users: weakref.WeakSet[object] = weakref.WeakSet()
        self.uuids: tuple[str, ...] = ()
        self.problem = ""

    def moment(self) -> Moment:
        """This moment."""
        moment = Moment(self._clock())
        if self._starts_itself:
            with self._sampled:
                starts, self._starts_itself = self._starts_itself, False
            if starts:
                self.start()
        self._moments.append(weakref.ref(moment))
        return moment

    def start_at_first_moment(self, uuids: Sequence[str]) -> None:
        """Start the thread when the first window begins.

        Most children of a training, such as those that load its data, measure nothing.
        """
        self.uuids = tuple(uuids)
        self._starts_itself = True

    def start(self) -> None:
        """Start the thread."""
        self._thread = TaskThread(self._run, "wattloop-energy")
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread at its next sample."""
        self._stopping.set()

    @property
    def running(self) -> bool:
        """Whether the thread samples, or is about to."""
        if self._starts_itself:
            return True
        return self._thread is not None and self._thread.is_alive() and not self._stopping.is_set()

    def wait_until_open(self, seconds: float = OPEN_SECONDS) -> None:
        """Wait until the source is open or has failed, at most so long."""
        if not self._opened.wait(seconds):
            self.problem = f"the driver did not answer within {seconds:g} s"

    def add_user(self, user: object) -> None:
        """Sample for as long as this object or another user exists."""
        self._users.add(user)

    def select(self, uuids: Sequence[str]) -> None:
        """Sample these GPUs too; without any selection, all are sampled."""
        self._selected = (*self._selected, *(uuid for uuid in uuids if uuid not in self._selected))

    def wait_for_readings(self, moment: Moment, uuids: Sequence[str]) -> None:
        """Wait until later readings can hardly improve the energy until a moment; not for long."""
        # From the moment on, so that a GPU that fails delays only what has just ended.
        deadline = moment.seconds + MAX_WAIT_SECONDS
        with self._sampled:
            while (
                moment.energy is None
                and self.running
                and not all(self._is_final(uuid, moment.seconds) for uuid in uuids)
                and (left := deadline - self._clock()) > 0
            ):
                self._sampled.wait(left)

    def energy_until(self, moment: Moment) -> EnergyState:
        """The energy until a moment, by what is known now."""
        with self._sampled:
            return moment.energy or self._look_up(moment.seconds)

    def is_shared(self, uuid: str, begin: Moment, end: Moment) -> bool | None:
        """Whether others used a GPU between two moments, by what is known now; None if that is not known."""
        with self._sampled:
            others = self._others.get(uuid)
            return None if others is None else others.between(begin.seconds, end.seconds)

    def edges(self, uuid: str, first: int, *, final: bool = True) -> list[CounterEdge]:
        """The edges of a GPU's counter; see `EnergyTimeline.edges`."""
        with self._sampled:
            timeline = self._timelines.get(uuid)
            return [] if timeline is None else timeline.edges(first, final=final)

    def joules_between(self, uuids: Sequence[str], begin_seconds: float, end_seconds: float) -> float | None:
        """Energy of some GPUs between two moments, by what is known now; None if a part of it is missing."""
        total = 0.0
        with self._sampled:
            for uuid in uuids:
                timeline = self._timelines.get(uuid)
                energy = None if timeline is None else timeline.between(begin_seconds, end_seconds)
                if energy is None or energy.missing:
                    return None
                total += energy.joules
        return total if uuids else None

    def hold(self) -> None:
        """Add no reading until `release`."""
        self._sampled.acquire()

    def release(self) -> None:
        """Add readings again."""
        self._sampled.release()

    def open(self) -> None:
        """Open the source.

        Raises:
            WattloopError: It is not available.
        """
        source = self._open_source()
        self.uuids = tuple(source.open())
        self._source = source

    def sample(self) -> None:
        """Wait for the next sample and keep it; called by the thread.

        Raises:
            WattloopError: The source failed.
        """
        if self._source is None:
            self.open()
        assert self._source is not None, "it is open"
        self.add(self._source.read(self._selected or self.uuids))

    def add(self, readings: Readings) -> None:
        """Keep a sample."""
        with self._sampled:
            for reading in readings.gpus:
                self._timelines.setdefault(reading.uuid, EnergyTimeline()).add(reading)
                self._others.setdefault(reading.uuid, OthersTimeline(reading.uuid)).add(reading.others)
            for zone, joules in readings.processor_joules.items():
                self._processors.setdefault(zone, ProcessorEnergy()).add(readings.processor_seconds, joules)
            self._look_up_old()
            self._sampled.notify_all()

    def _run(self) -> None:
        try:
            self.open()
        except WattloopError as error:
            self.problem = str(error)
            self._opened.set()
            return
        self._opened.set()
        while not self._stopping.is_set():
            try:
                self.sample()
                self._failures = 0
            except WattloopError as error:
                self._recover(error)
            if not self._users:
                # No monitor is left.
                self.stop()
        self._close()

    def _recover(self, error: WattloopError) -> None:
        if self._failures == len(RETRY_SECONDS):
            logger.warning("there are no readings of energy at the moment: %s; they are tried again", error)
        self._close()
        self._stopping.wait(RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS) - 1)])
        self._failures += 1

    def _close(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _is_final(self, uuid: str, seconds: float) -> bool:
        timeline = self._timelines.get(uuid)
        return timeline is not None and timeline.is_final(seconds)

    def _look_up(self, seconds: float) -> EnergyState:
        return EnergyState(
            {uuid: timeline.at(seconds) for uuid, timeline in self._timelines.items()},
            {zone: energy.at(seconds) for zone, energy in self._processors.items()},
        )

    def _look_up_old(self) -> None:
        oldest = self._clock() - KEPT_SECONDS
        for _ in range(MAX_LOOKED_UP):
            if not self._moments:
                return
            moment = self._moments[0]()
            if moment is not None and moment.seconds > oldest:
                return
            self._moments.popleft()
            if moment is not None:
                moment.energy = self._look_up(moment.seconds)


class _SharedSampler:
    """The sampler that all monitors of this process share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sampler: ProcessSampler | None = None

    def get(self, open_source: Callable[[], ReadingSource], user: object) -> ProcessSampler:
        """The running sampler; a new one if there is none. It runs for as long as the user exists."""
        with self._lock:
            if self._sampler is None or not self._sampler.running:
                self._sampler = ProcessSampler(open_source)
                self._sampler.add_user(user)
                self._sampler.start()
            self._sampler.add_user(user)
            return self._sampler

    def before_fork(self) -> None:
        """Hold the locks, so that the child finds no reading half added."""
        self._lock.acquire()
        if self._sampler is not None:
            self._sampler.hold()

    def after_fork(self) -> None:
        """Release the locks, in the parent and in the child."""
        if self._sampler is not None:
            self._sampler.release()
        self._lock.release()

    def replace_in_child(self, open_source: Callable[[], ReadingSource]) -> ProcessSampler | None:
        """After a fork, in the child: the sampler's thread exists in the parent only.

        The sampler of the parent remains for measurements that were taken before.
        """
        self.after_fork()
        if self._sampler is not None:
            self._sampler.stop()
            uuids = self._sampler.uuids
            self._sampler = ProcessSampler(open_source)
            self._sampler.start_at_first_moment(uuids)
        return self._sampler

    def stop(self) -> None:
        """At the exit of the interpreter."""
        if self._sampler is not None:
            self._sampler.stop()


process_sampler = _SharedSampler()
atexit.register(process_sampler.stop)
