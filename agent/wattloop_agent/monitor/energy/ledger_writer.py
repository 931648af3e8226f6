"""Keeps a ledger on disk: opens it, writes it when it is due, tells what is wrong with either. Never raises."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from wattloop.nvml import driver_load
from wattloop_agent.boot import boot_id
from wattloop_agent.monitor.energy.gpu_sample import GpuSample
from wattloop_agent.monitor.energy.ledger import Ledger, LedgerState
from wattloop_agent.monitor.energy.ledger_file import CorruptLedger, FolderInUse, LedgerFile
from wattloop_agent.monitor.energy.records import state_from_record, state_to_record

logger = logging.getLogger(__name__)

# The first look is written at once: a ledger that is on no disk dies with the monitor, and with it the counters that it
# began at. What has changed hands is written soon. What was merely used since, the counters still know after a restart.
CHANGE_SECONDS = 1.5
WRITE_SECONDS = 10.0


class LedgerWriter:
    """The node's ledger and its file.

    Where the file can't be used, accounting goes on in memory and the file is tried again at each time that it is due.

    Args:
        folder: The monitor's state folder.
        clock: The monotonic clock.
        boot: This boot's id.
        driver: Which load of the driver there is; None: it is not known.

    Attributes:
        due: Called, in the thread of the look, when `keep` should be called at once.
        problem: What a person should look at; empty: nothing.
        written_seconds: When it was last written, on the monotonic clock; None: never.
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
        self._load: str | None = None
        self._file: LedgerFile | None = None
        # A write that was begun in another thread is not done when its task is cancelled.
        self._writing = threading.Lock()
        self._begun = False
        self._first_due = False
        self.due: Callable[[], None] = lambda: None
        self._changed_seconds: float | None = None
        self._tried_seconds = clock()
        self._damage = ""
        self._in_use = False
        self.problem = ""
        self.written_seconds: float | None = None
        self.ledger = Ledger(self._opened())

    def sample(self, samples: Sequence[GpuSample]) -> None:
        """Account for a look at all GPUs."""
        # Where another monitor accounts, perhaps the one that we come in place of, we go on where it ends.
        if self._in_use:
            return
        driver = self._driver() if samples else None
        if samples and driver != self._load:
            before, self._load = self._load, driver
            if before is not None:
                # Of which load these samples are is not known: it changed since the last ones. The next look tells.
                return
        if self.ledger.sample(samples, self._clock(), driver) and self._changed_seconds is None:
            self._changed_seconds = self._clock()
        if samples and not self._begun:
            self._begun = self._first_due = True
            self.due()

    def keep(self) -> None:
        """Write the ledger down where that is due; waits for the disk."""
        with self._writing:
            self._keep()

    def _keep(self) -> None:
        if self._first_due:
            self._first_due = False
            self._write()
            return
        waited = self._clock() - self._tried_seconds
        if waited < CHANGE_SECONDS or (self._changed_seconds is None and waited < WRITE_SECONDS and not self._in_use):
            return
        if self._in_use:
            self.ledger.replace(self._opened())
        self._write()

    def _write(self) -> None:
        self._tried_seconds = self._clock()
        if self._in_use:
            return
        try:
            if self._file is None:
                self._file = LedgerFile(self._folder)
                if self._file.path.exists():
                    # It could not be read when we began; what it holds is not ours to overwrite.
                    self._damage = str(self._file.corrupt("it could not be read at the start"))
            self._file.write(self.ledger.read(lambda book: state_to_record(book, self._boot)))
        except OSError as error:
            self._tell(_not_kept(self._folder, error))
            return
        self._changed_seconds = None
        self.written_seconds = self._tried_seconds
        self._tell(self._damage)

    def close(self) -> None:
        """Write it a last time, and let the file go."""
        with self._writing:
            self._write()
            if self._file is not None:
                self._file.close()
                self._file = None

    def _opened(self) -> LedgerState:
        self._tried_seconds = self._clock()
        self._in_use = False
        try:
            self._file = LedgerFile(self._folder)
            return self._read(self._file)
        except FolderInUse as error:
            self._in_use = True
            self._tell(_not_kept(self._folder, error))
        except CorruptLedger as damage:
            self._damage = str(damage)
            self._tell(self._damage)
        except OSError as error:
            if self._file is not None:
                self._file.close()
                self._file = None
            self._tell(_not_kept(self._folder, error))
        return LedgerState()

    def _read(self, file: LedgerFile) -> LedgerState:
        record = file.read()
        if record is None:
            return LedgerState()
        try:
            return state_from_record(record, self._boot, self._clock())
        except (KeyError, TypeError, ValueError) as error:
            raise file.corrupt(f"{type(error).__name__}: {error}") from error

    def _tell(self, problem: str) -> None:
        if problem != self.problem:
            logger.log(
                logging.ERROR if problem else logging.INFO, "energy ledger", extra={"problem": problem or "none"}
            )
        self.problem = problem


def _not_kept(folder: Path, error: OSError) -> str:
    return (
        f"{folder}: the energy ledger can't be kept there ({error.strerror}), so a restart forgets whose energy it was"
    )
