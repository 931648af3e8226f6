"""The energy windows of Zeus, measured by Wattloop; `wattloop.compat.zeus` has these names."""

import atexit
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from wattloop.energy_monitor import EnergyMonitor
from wattloop.energy_monitor import Measurement as WattloopMeasurement
from wattloop.energy_monitor.energy_monitor import synchronization
from wattloop.energy_monitor.process_sampler import MAX_WAIT_SECONDS
from wattloop.errors import UsageError


class WindowError(UsageError, ValueError):
    """A window is open already or not open. A ``ValueError``, as in Zeus."""


class Measurement:
    """The result of one window, with the names of Zeus.

    Args:
        measurement: Wattloop's measurement; None for a cancelled window, whose time and energies are 0.
        gpu_indices: The monitor's GPUs.
        cpu_indices: The processor packages to show; None for all.

    Attributes:
        time: Length of the window, in seconds.
        soc_energy: None: systems on a chip are not measured.
        measurement: Wattloop's measurement, with its uncertainty; None for a cancelled window.
    """

    def __init__(
        self,
        measurement: WattloopMeasurement | None,
        gpu_indices: Sequence[int],
        cpu_indices: Sequence[int] | None = None,
    ) -> None:
        self.measurement = measurement
        self.time = 0.0 if measurement is None else measurement.time_seconds
        self.soc_energy = None
        self._gpu_indices = tuple(gpu_indices)
        self._cpu_indices = cpu_indices

    @property
    def gpu_energy(self) -> dict[int, float]:
        """Energy of each GPU, in joules, by CUDA's index."""
        if self.measurement is None:
            return dict.fromkeys(self._gpu_indices, 0.0)
        return self.measurement.gpu_energy_joules

    @property
    def total_energy(self) -> float:
        """Energy of the GPUs together, in joules."""
        return sum(self.gpu_energy.values())

    @property
    def cpu_energy(self) -> dict[int, float] | None:
        """Energy of each processor package, in joules; None if not measured."""
        return None if self.measurement is None else self._shown(self.measurement.cpu_energy_joules_by_package)

    @property
    def dram_energy(self) -> dict[int, float] | None:
        """Energy of the memory of each processor package, in joules; None if not measured."""
        return None if self.measurement is None else self._shown(self.measurement.dram_energy_joules_by_package)

    def __repr__(self) -> str:
        return (
            f"Measurement(time={self.time!r}, gpu_energy={self.gpu_energy!r}, cpu_energy={self.cpu_energy!r}, "
            f"dram_energy={self.dram_energy!r}, soc_energy=None)"
        )

    def _shown(self, energies: dict[int, float]) -> dict[int, float] | None:
        if self._cpu_indices is not None:
            energies = {package: joules for package, joules in energies.items() if package in self._cpu_indices}
        return energies or None


class ZeusMonitor:
    """Windows with the names and the arguments of Zeus' monitor.

    Args:
        gpu_indices: CUDA's indices; default: all GPUs that CUDA shows to this process.
        cpu_indices: Processor packages to show; default: all.
        approx_instant_energy: Accepted; a window that is shorter than the counter's step has an energy anyway.
        log_file: A CSV file to write the windows to: each at the end of a window that ends at least 0.6 s later, and
            the last ones when the interpreter exits.
        sync_execution_with: The framework whose work on the GPUs is waited for. One that is not imported is not.

    Attributes:
        gpu_indices: CUDA's indices of its GPUs.
        gpu_uuids: Their UUIDs, in the same order.

    Raises:
        UsageError: A GPU does not exist or is named twice, or there is no such framework.
        OSError: The log file can't be written.
    """

    def __init__(
        self,
        gpu_indices: list[int] | None = None,
        cpu_indices: list[int] | None = None,
        approx_instant_energy: bool = False,
        log_file: str | Path | None = None,
        sync_execution_with: str = "torch",
    ) -> None:
        self._synchronize = synchronization(sync_execution_with)
        self._monitor = EnergyMonitor(gpu_indices)
        self._cpu_indices = cpu_indices
        self.approx_instant_energy = approx_instant_energy
        self.gpu_indices = list(self._monitor.gpu_indices)
        self.gpu_uuids = self._monitor.gpu_uuids
        self._begin_times: dict[str, float] = {}
        self._log = None if log_file is None else _WindowLog(Path(log_file), self.gpu_indices)

    def begin_window(self, key: str, sync_execution: bool = True, restart: bool = False) -> None:
        """Begin a window.

        Args:
            key: Its name.
            sync_execution: Whether to wait for work on the GPUs first.
            restart: Whether to discard an open window of this name.

        Raises:
            WindowError: A window of this name is open already.
        """
        self._wait(sync_execution)
        begin = time.time()
        try:
            self._monitor.begin_window(key, restart=restart)
        except UsageError as error:
            raise WindowError(str(error)) from None
        self._begin_times[key] = begin

    def end_window(self, key: str, sync_execution: bool = True, cancel: bool = False) -> Measurement:
        """End a window.

        Args:
            key: Its name.
            sync_execution: Whether to wait for work on the GPUs first.
            cancel: Whether to discard it; the result then has no time and no energy.

        Raises:
            WindowError: No window of this name is open.
        """
        self._wait(sync_execution)
        try:
            if cancel:
                self._monitor.cancel_window(key)
                return Measurement(None, self.gpu_indices, self._cpu_indices)
            measurement = self._monitor.end_window(key)
        except UsageError as error:
            raise WindowError(str(error)) from None
        result = Measurement(measurement, self.gpu_indices, self._cpu_indices)
        if self._log is not None:
            self._log.add(self._begin_times.get(key, 0.0), key, result)
        return result

    def reset_windows(self) -> None:
        """Cancel all open windows."""
        for key in self._monitor.open_windows():
            self._monitor.cancel_window(key)

    def _wait(self, sync_execution: bool) -> None:
        if sync_execution and self._synchronize is not None and self.gpu_indices:
            self._synchronize(self.gpu_indices)


class _WindowLog:
    """Writes windows to a file once their energies are known, so that the end of a window does not wait for them."""

    def __init__(self, path: Path, gpu_indices: Sequence[int]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = path.open("w", encoding="utf-8")
        self._gpu_indices = tuple(gpu_indices)
        self._pending: deque[tuple[float, float, str, Measurement]] = deque()
        self._lock = threading.Lock()
        columns = ",".join(f"gpu{index}_energy" for index in self._gpu_indices)
        self._file.write(f"start_time,window_name,elapsed_time,{columns}\n")
        self._file.flush()
        finish = weakref.WeakMethod(self.close)
        atexit.register(lambda: (method := finish()) is not None and method())

    def add(self, begin: float, key: str, measurement: Measurement) -> None:
        """Write a window soon."""
        now = time.monotonic()
        self._pending.append((now, begin, key, measurement))
        if now - self._pending[0][0] > MAX_WAIT_SECONDS:
            self._write(now - MAX_WAIT_SECONDS)

    def close(self) -> None:
        """Write what is left."""
        self._write(time.monotonic())
        self._file.close()

    def _write(self, until_seconds: float) -> None:
        with self._lock:
            while self._pending and self._pending[0][0] <= until_seconds:
                _, begin, key, measurement = self._pending.popleft()
                energies = measurement.gpu_energy
                values = ",".join(str(energies.get(index, "")) for index in self._gpu_indices)
                self._file.write(f"{begin},{key},{measurement.time},{values}\n")
            self._file.flush()

    def __del__(self) -> None:
        if not self._file.closed:
            self.close()
