"""Updates the ledger with observations of GPU assignments, and writes it to disk."""

import asyncio
import contextlib
import hashlib
import json
import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from wattloop.energy.gpu_reading import GpuReading
from wattloop.gpus.nvml import driver_load
from wattloop.gpus.rapl import Rapl
from wattloop_agent.durable_file import CorruptFileError, StateFile, boot_id
from wattloop_agent.monitor.energy.attribution import Assignment, AssignmentObservation
from wattloop_agent.monitor.energy.ledger import Ledger, LedgerState
from wattloop_agent.refusals import RequestError

logger = logging.getLogger(__name__)

# The first sampling is written immediately: if the monitor is killed before it has written a ledger,
# the counter values at which the ledger began are lost. A change of assignments is written soon.
# Energy alone is written seldom, because the counters still have it after a restart.
CHANGE_SECONDS = 1.5
WRITE_SECONDS = 10.0
INTERVAL_SECONDS = 2.0
FORMAT = 1
NAME = "energy.json"
# An interval or an account has less than 600 bytes; attribution.MAX_ENDED bounds the intervals.
MAX_BYTES = 8 * 1024 * 1024
LedgerFile = StateFile[dict[str, Any]]


def opened_ledger_file(folder: Path) -> LedgerFile:
    """The ledger's file in the monitor's state folder, which is created if missing, like the power controller's above.

    Raises:
        BlockingIOError: Another monitor has locked the folder.
        OSError: The folder can't be used.
    """
    for each in (folder.parent, folder):
        if not each.is_dir():
            # With access for this user only.
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
    return StateFile(folder / NAME, "ledger", MAX_BYTES, encoded=_encoded, decoded=_decoded)


def _encoded(record: Mapping[str, Any]) -> bytes:
    body = json.dumps(record, separators=(",", ":"))
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{{"format":{FORMAT},"sha256":"{digest}","ledger":{body}}}\n'.encode()


def _decoded(data: bytes) -> dict[str, Any]:
    content = json.loads(data)
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']!r}; this agent reads format {FORMAT}")
    ledger: dict[str, Any] = content["ledger"]
    body = json.dumps(ledger, separators=(",", ":"))
    if content["sha256"] != hashlib.sha256(body.encode()).hexdigest():
        raise ValueError("its checksum does not match its content")
    return ledger


class LedgerWriter:
    """The node's ledger and its file. No method raises an error.

    While the file can't be used, the ledger stays in memory, and each write that is due tries the file again.

    Attributes:
        on_due: Called in the sampler's thread when `write_if_due` should be called at once.
        problem: A problem that needs attention; empty if there is none.
        written_seconds: Monotonic clock at the last write; None if there was none.
    """

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
        boot: Callable[[], str] = boot_id,
        driver: Callable[[], str | None] = driver_load,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._boot = boot()
        self._driver = driver
        self._driver_load: str | None = None
        self._file: LedgerFile | None = None
        # A write in another thread continues after its task is cancelled.
        self._writing = threading.Lock()
        self._has_samples = False
        self._first_write_due = False
        self.on_due: Callable[[], None] = lambda: None
        self._changed_seconds: float | None = None
        self._tried_seconds = clock()
        self._damage = ""
        self._in_use = False
        self.problem = ""
        self.written_seconds: float | None = None
        self.ledger = Ledger(self._opened())

    def add_samples(self, samples: Sequence[GpuReading]) -> None:
        """Add one sampling of all GPUs to the ledger."""
        # If another monitor has the folder, for example the one that this one replaces, continue when it ends.
        if self._in_use:
            return
        driver = self._driver() if samples else None
        if samples and driver != self._driver_load:
            before, self._driver_load = self._driver_load, driver
            if before is not None:
                # The driver changed since the last sampling, so it is unknown which load these samples belong to.
                return
        if self.ledger.add_samples(samples, self._clock(), driver) and self._changed_seconds is None:
            self._changed_seconds = self._clock()
        if samples and not self._has_samples:
            self._has_samples = self._first_write_due = True
            self.on_due()

    def counter_id(self) -> str:
        """Identifies what the counters and the clock of this node count from: its boot, and the load of the driver."""
        return f"{zlib.crc32(f'{self._boot} {self._driver()}'.encode()):08x}"

    def integrated(self, reading: GpuReading) -> GpuReading:
        """Add a reading to the ledger if its GPU has no counter, and return it with the integrated energy."""
        if reading.energy_millijoules is not None:
            return reading
        self.add_samples([reading])
        return reading._replace(integrated=self.ledger.integrated(reading.uuid))

    def write_if_due(self) -> None:
        """Write the ledger if that is due; blocks on the disk."""
        with self._writing:
            waited = self._clock() - self._tried_seconds
            soon = self._changed_seconds is not None or self._in_use
            if not self._first_write_due:
                if waited < (CHANGE_SECONDS if soon else WRITE_SECONDS):
                    return
                if self._in_use:
                    self.ledger.replace(self._opened())
            self._first_write_due = False
            self._write()

    def _write(self) -> None:
        self._tried_seconds = self._clock()
        if self._in_use:
            return
        try:
            if self._file is None:
                self._file = opened_ledger_file(self._folder)
                if self._file.path.exists():
                    # The file could not be read at the start, so it must not be overwritten.
                    self._damage = str(self._file.move_aside("it could not be read at the start"))
            self._file.write(self.ledger.read(lambda state: state.to_record(self._boot)))
        except OSError as error:
            self._set_problem(_storage_problem(self._folder, error))
            return
        self._changed_seconds = None
        self.written_seconds = self._tried_seconds
        self._set_problem(self._damage)

    def close(self) -> None:
        """Write the ledger and release the file."""
        with self._writing:
            self._write()
            if self._file is not None:
                self._file.close()
                self._file = None

    def _opened(self) -> LedgerState:
        self._tried_seconds = self._clock()
        self._in_use = False
        try:
            self._file = opened_ledger_file(self._folder)
            return self._read(self._file)
        except BlockingIOError as error:
            self._in_use = True
            self._set_problem(_storage_problem(self._folder, error))
        except CorruptFileError as damage:
            self._damage = str(damage)
            self._set_problem(self._damage)
        except OSError as error:
            if self._file is not None:
                self._file.close()
                self._file = None
            self._set_problem(_storage_problem(self._folder, error))
        return LedgerState()

    def _read(self, file: LedgerFile) -> LedgerState:
        record = file.read()
        if record is None:
            return LedgerState()
        try:
            return LedgerState.from_record(record, self._boot, self._clock())
        except (KeyError, TypeError, ValueError) as error:
            raise file.move_aside(f"{type(error).__name__}: {error}") from error

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem:
            level = logging.ERROR if problem else logging.INFO
            logger.log(level, "energy ledger", extra={"problem": problem or "none"})
        self.problem = problem


def _storage_problem(folder: Path, error: OSError) -> str:
    return f"{folder}: the energy ledger can't be stored there ({error.strerror}); a restart loses the pods' energy"


class Assignments(Protocol):
    """Source of the GPU assignments."""

    async def observe(self, known: Iterable[Assignment]) -> AssignmentObservation:
        """The current assignments, and the first process of each pod that is new; `RequestError`: they are unknown."""


class EnergyRecorder:
    """Updates the node's ledger at an interval.

    Args:
        writer: The ledger and its file.
        assignments: Source of the GPU assignments; None if this machine assigns no GPUs, so that there are no usages.
        on_change: Called when assignments have changed, before the ledger uses them.

    Attributes:
        ledger: The node's.
        rapl: Energy of processors and memory.
        problem: Why the assignments are unknown; empty if they are known.
    """

    def __init__(
        self, writer: LedgerWriter, assignments: Assignments | None, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._writer = writer
        self.ledger = writer.ledger
        self._assignments = assignments
        self._on_change = on_change
        self.rapl = Rapl()
        self.problem = ""
        self._is_answered = False

    @property
    def are_assignments_known(self) -> bool:
        """Whether the ledger has all assignments: they are observed, and the ledger has applied an observation."""
        return self._is_answered and self.ledger.is_complete

    async def run(self) -> None:
        """Update the ledger until cancelled."""
        loop, due = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            # RuntimeError: the loop has ended; closing the ledger writes it.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(due.set)

        self._writer.on_due = wake
        while True:
            due.clear()
            try:
                if self._assignments is not None:
                    await self._observe(self._assignments)
                await asyncio.to_thread(self._read_and_write)
            except Exception as error:
                # One lost observation is better than an end of the accounting that goes unnoticed.
                logger.exception("unexpected failure of an observation of GPU assignments; retrying")
                self.problem = f"{type(error).__name__}: {error}"
                self._is_answered = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_SECONDS):
                    await due.wait()

    def _read_and_write(self) -> None:
        self.rapl.read()
        self._writer.write_if_due()

    async def _observe(self, assignments: Assignments) -> None:
        try:
            assigned = self.ledger.assigned()
            observation = await assignments.observe(assigned)
            if {each.key for each in observation.assignments} != {each.key for each in assigned}:
                self._on_change()
            self.ledger.observe(observation)
            self._set_problem("")
            self._is_answered = True
        except RequestError as error:
            self._set_problem(error.message)
            self._is_answered = False

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem:
            level = logging.ERROR if problem else logging.INFO
            logger.log(level, "GPU assignments", extra={"problem": problem or "none"})
        self.problem = problem
