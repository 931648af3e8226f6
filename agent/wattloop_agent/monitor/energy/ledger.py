"""The ledger of a node: cumulative energy of each GPU, and the part that each container used.

The ledger does no input or output. A lock protects it: the sampler's thread writes, the event loop
and the metrics' threads read.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any, TypeVar

from wattloop.energy.gpu_reading import GpuReading, IntegratedEnergy
from wattloop.wire.node_energy import NodeGpu, PodGpuUsage
from wattloop_agent.monitor.energy.attribution import (
    AWAY_SECONDS,
    Assignment,
    AssignmentObservation,
    ChangeWindow,
    Key,
    UsageInterval,
    drop_oldest_ended,
    updated_intervals,
)
from wattloop_agent.monitor.energy.counter import CounterReset
from wattloop_agent.monitor.energy.energy_snapshot import EnergySnapshot
from wattloop_agent.monitor.energy.gpu_account import GpuAccount

logger = logging.getLogger(__name__)

# An observation waits for the counters' next update, so that its moment lies between two updates.
UPDATE_WAIT_SECONDS = 0.2
MAX_PENDING_OBSERVATIONS = 64
Result = TypeVar("Result")


@dataclass
class LedgerState:
    """The content of a ledger, as its file stores it.

    Attributes:
        id: Random id; numbers of ledgers with different ids are independent and add up.
        accounts: By GPU UUID.
        intervals: Usage intervals, oldest first.
        observed: By GPU UUID, the account when the last observation began.
        observed_seconds: When that was, on the monotonic clock; None: never, or in another boot.
        dropped: Number of ended intervals that were dropped because there were too many.
        driver: The driver load that the counters belong to; None if unknown.
        resumed: Whether the state was read from its file in the same boot, and no sample was added since.
    """

    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    accounts: dict[str, GpuAccount] = field(default_factory=dict)
    intervals: dict[Key, UsageInterval] = field(default_factory=dict)
    observed: dict[str, EnergySnapshot] = field(default_factory=dict)
    observed_seconds: float | None = None
    dropped: int = 0
    driver: str | None = None
    resumed: bool = False

    def to_record(self, boot_id: str) -> dict[str, Any]:
        """Return the state as JSON types, with the boot that its clocks and counters belong to."""
        return {
            "id": self.id,
            "boot": boot_id,
            "driver": self.driver,
            "observed_seconds": self.observed_seconds,
            "dropped": self.dropped,
            "accounts": [account.to_record() for account in self.accounts.values()],
            "observed": {uuid: astuple(snapshot) for uuid, snapshot in self.observed.items()},
            "intervals": [interval.to_record() for interval in self.intervals.values()],
        }

    @staticmethod
    def from_record(record: Mapping[str, Any], boot_id: str, now_seconds: float) -> LedgerState:
        """Return the state of a record, to continue from.

        Args:
            record: Result of `to_record`.
            boot_id: Id of the current boot. If the record has another, counters and clocks restart and sums continue.
            now_seconds: Monotonic clock.

        Raises:
            KeyError, TypeError, ValueError: The record is invalid.
        """
        ends = [account["last"][0] for account in record["accounts"] if account["last"] is not None]
        same_boot = record["boot"] == boot_id and max(ends, default=0.0) <= now_seconds
        accounts = [GpuAccount.from_record(account, same_boot=same_boot) for account in record["accounts"]]
        intervals = [UsageInterval.from_record(interval) for interval in record["intervals"]]
        return LedgerState(
            id=str(record["id"]),
            accounts={account.uuid: account for account in accounts},
            intervals={interval.assignment.key: interval for interval in intervals},
            observed={str(uuid): EnergySnapshot.from_record(values) for uuid, values in record["observed"].items()},
            observed_seconds=record["observed_seconds"] if same_boot else None,
            dropped=int(record["dropped"]),
            driver=record["driver"] if same_boot else None,
            resumed=same_boot,
        )


class Ledger:
    """Thread-safe access to a `LedgerState`."""

    def __init__(self, state: LedgerState | None = None) -> None:
        self._state = state or LedgerState()
        self._lock = threading.Lock()
        self._pending: deque[AssignmentObservation] = deque(maxlen=MAX_PENDING_OBSERVATIONS)
        self._is_complete = False

    @property
    def id(self) -> str:
        """Id of the ledger; numbers of ledgers with different ids are independent and add up."""
        return self._state.id

    @property
    def is_complete(self) -> bool:
        """Whether the usages have all assignments of the observation that was applied last; False before the first."""
        return self._is_complete

    def usages(self) -> tuple[PodGpuUsage, ...]:
        """Return the usage of each (pod uid, container, GPU) that was not forgotten."""
        with self._lock:
            return tuple(interval.to_wire() for interval in self._state.intervals.values())

    def gpus(self) -> tuple[NodeGpu, ...]:
        """Return the energy of each GPU since the ledger began."""
        with self._lock:
            return tuple(account.to_wire() for account in self._state.accounts.values())

    def integrated(self, uuid: str) -> IntegratedEnergy | None:
        """Return the integrated energy of a GPU without a counter; None if it has one or was not sampled."""
        with self._lock:
            account = self._state.accounts.get(uuid)
            return None if account is None else account.integrated()

    def resets(self) -> dict[str, int]:
        """Return, by GPU UUID, the number of counter resets since the ledger began."""
        with self._lock:
            return {uuid: account.resets for uuid, account in self._state.accounts.items()}

    def dropped(self) -> int:
        """Return the number of ended usages that were dropped because there were too many."""
        return self._state.dropped

    def forget(self, pod_uids: Iterable[str]) -> None:
        """Remove the ended usages of these pods, which are stored elsewhere."""
        forgotten = set(pod_uids)
        with self._lock:
            intervals = self._state.intervals
            for key in [key for key, each in intervals.items() if each.ended and key[0] in forgotten]:
                del intervals[key]

    def assigned(self) -> tuple[Assignment, ...]:
        """Return the GPU assignments of the last observation."""
        with self._lock:
            return tuple(interval.assignment for interval in self._state.intervals.values() if not interval.ended)

    def replace(self, state: LedgerState) -> None:
        """Replace the state."""
        with self._lock:
            self._state, self._is_complete = state, False
            self._pending.clear()

    def read(self, function: Callable[[LedgerState], Result]) -> Result:
        """Return the result of a function of the state, which does not change meanwhile."""
        with self._lock:
            return function(self._state)

    def observe(self, observation: AssignmentObservation) -> None:
        """Add an observation of the GPU assignments; observations are in order of time."""
        with self._lock:
            self._pending.append(observation)

    def add_samples(self, samples: Sequence[GpuReading], now_seconds: float, driver: str | None = None) -> bool:
        """Add the sample of each GPU that answered; return whether assignments have started or ended.

        Args:
            samples: The samples.
            now_seconds: Monotonic clock, not before any of the samples.
            driver: The driver load that the samples belong to; None if unknown.
        """
        with self._lock:
            if samples:
                self._set_driver(driver)
            for sample in samples:
                self._add_sample(sample)
            changed = False
            # The thread may have paused since it read the GPUs: readings from before an observation do not bound it.
            read_since = min((sample.begin_seconds for sample in samples), default=now_seconds)
            while self._pending and self._pending[0].end_seconds + UPDATE_WAIT_SECONDS <= read_since:
                changed = self._apply(self._pending.popleft()) or changed
            return changed

    def _set_driver(self, driver: str | None) -> None:
        """Prepare the accounts for a counter reset: each load of the driver resets the counters."""
        state = self._state
        reset = CounterReset.POSSIBLE if state.resumed else CounterReset.NO
        if driver is not None and state.driver is not None:
            reset = CounterReset.YES if driver != state.driver else CounterReset.NO
        if reset is not CounterReset.NO:
            for account in state.accounts.values():
                account.expect_reset(reset)
        state.driver, state.resumed = driver or state.driver, False

    def _add_sample(self, sample: GpuReading) -> None:
        accounts = self._state.accounts
        account = accounts.get(sample.uuid)
        if account is None:
            account = accounts[sample.uuid] = GpuAccount(sample.uuid, sample.product)
        resets = account.resets
        account.add(sample)
        if account.resets > resets:
            logger.warning(
                "energy counter was reset; the energy of the gap is estimated from power",
                extra={"gpu": sample.uuid, "counter_millijoules": sample.energy_millijoules},
            )

    def _apply(self, observation: AssignmentObservation) -> bool:
        state = self._state
        windows = {uuid: self._window(uuid, observation) for uuid in state.accounts}
        windows |= {
            uuid: self._with_earlier_start(uuid, windows[uuid], began) for uuid, began in self._listed_late(observation)
        }
        before = {key: interval.ended for key, interval in state.intervals.items()}
        intervals, dropped = drop_oldest_ended(updated_intervals(state.intervals, observation.assignments, windows))
        state.intervals = {interval.assignment.key: interval for interval in intervals}
        state.observed = {uuid: window.observed for uuid, window in windows.items()}
        state.observed_seconds = observation.begin_seconds
        self._is_complete = observation.is_complete and windows.keys() >= {each.gpu for each in observation.assignments}
        if dropped:
            state.dropped += dropped
            logger.error("ledger full: the oldest ended usages were dropped unreported", extra={"dropped": dropped})
        return before != {key: interval.ended for key, interval in state.intervals.items()}

    def _listed_late(self, observation: AssignmentObservation) -> list[tuple[str, float]]:
        """Return (GPU UUID, first process) of each pod that the last observation missed.

        A kubelet that restarts lists some pods later than others.
        """
        since = self._state.observed_seconds
        found = []
        for each in observation.assignments:
            began = observation.first_processes.get(each.pod_uid)
            if since is None or began is None or began >= since or each.gpu not in self._state.accounts:
                continue
            interval = self._state.intervals.get(each.key)
            if interval is None or interval.ended:
                found.append((each.gpu, began))
        return found

    def _with_earlier_start(self, uuid: str, window: ChangeWindow, began_seconds: float) -> ChangeWindow:
        """Return the window with starts from the first process of a pod on, if that is earlier."""
        low, high = window.starts
        begun = self._state.accounts[uuid].snapshot_before(began_seconds)
        return replace(window, starts=(begun if begun.energy_millijoules < low.energy_millijoules else low, high))

    def _window(self, uuid: str, observation: AssignmentObservation) -> ChangeWindow:
        account = self._state.accounts[uuid]
        begin, high = account.snapshot_at(observation.begin_seconds), account.snapshot_at(observation.end_seconds)
        low = self._state.observed.get(uuid)
        if low is None:
            high = high.not_before(begin)
            return ChangeWindow((begin, high), (begin, high), begin)
        begin = begin.not_before(low)
        high = high.not_before(begin)
        since = self._state.observed_seconds
        if since is None:
            # After a reboot each assignment is new: it started after the end of the other boot.
            oldest = account.oldest_snapshot().not_before(low)
            return ChangeWindow((low, oldest), (oldest, high), begin, away=True)
        return ChangeWindow((low, high), (low, high), begin, away=observation.end_seconds - since > AWAY_SECONDS)
