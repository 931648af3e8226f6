"""Readings by NVML and RAPL in this process, for machines without an agent."""

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from wattloop.energy.gpu_reading import NOT_ASKED, GpuReading, OtherUse
from wattloop.energy_monitor.readings import INTERVAL_SECONDS, Readings
from wattloop.errors import OperationError
from wattloop.gpus.gpu_processes import others_among, text_of
from wattloop.gpus.nvml import EnergyCounters, Gpu, NvmlError, Session, lists_all_processes
from wattloop.gpus.process_gpus import CUDA_VARIABLE, visible_gpus
from wattloop.gpus.rapl import POWERCAP, Rapl

LIBRARY_VARIABLE = "WATTLOOP_NVML_LIBRARY"
# A GPU that fails is read again after so long; each attempt may make NVML start again.
FAILED_SECONDS = 1.0
# The list of a GPU's processes costs the driver a call.
OTHERS_SECONDS = 1.0


class NvmlSource:
    """Reads GPUs at an interval.

    Args:
        environment: The process's variables: ``WATTLOOP_NVML_LIBRARY`` names another library than the
            system's, and ``CUDA_VISIBLE_DEVICES`` selects the GPUs.
    """

    def __init__(
        self,
        environment: Mapping[str, str] = os.environ,
        interval_seconds: float = INTERVAL_SECONDS,
        powercap: Path = POWERCAP,
    ) -> None:
        self._environment = environment
        self._interval_seconds = interval_seconds
        self._powercap = powercap
        self._session = Session()
        self._gpus: dict[str, Gpu] = {}
        self._counters = EnergyCounters()
        self._failed_seconds: dict[str, float] = {}
        self._rapl: Rapl | None = None
        self._due_seconds = 0.0
        self._others: dict[str, OtherUse] = {}
        self._others_due_seconds = 0.0
        self._pause = threading.Event()

    def open(self) -> Sequence[str]:
        """See `ReadingSource`."""
        library = self._environment.get(LIBRARY_VARIABLE, "")
        if library:
            try:
                # pynvml then gets this library from the linker, by its soname.
                ctypes.CDLL(library)
            except OSError as error:
                raise OperationError(f"{library}, named by {LIBRARY_VARIABLE}, can't be loaded: {error}") from error
        self._session.open()
        answers = [gpu for gpu in self._session.gpus_or_errors() if isinstance(gpu, Gpu)]
        self._gpus = {gpu.uuid: gpu for gpu in answers}
        self._rapl = Rapl(self._powercap)
        value = self._environment.get(CUDA_VARIABLE)
        parts = _gpu_by_mig_device(answers) if value is not None and "MIG-" in value else {}
        return visible_gpus(value, list(self._gpus), parts)

    def read(self, uuids: Sequence[str]) -> Readings:
        """See `ReadingSource`."""
        now = time.monotonic()
        if self._due_seconds > now:
            self._pause.wait(self._due_seconds - now)
        self._due_seconds = max(self._due_seconds, now) + self._interval_seconds
        if now >= self._others_due_seconds:
            self._others_due_seconds = now + OTHERS_SECONDS
            self._others = {uuid: _other_use(self._gpus[uuid]) for uuid in uuids if uuid in self._gpus}
        gpus = [reading for uuid in uuids if (reading := self._reading(uuid)) is not None]
        if uuids and len(self._failed_seconds) == len(uuids):
            # After a restart of the driver, NVML must be opened again.
            raise OperationError("none of the GPUs answers")
        if self._rapl is None:
            return Readings(gpus)
        self._rapl.read()
        return Readings(gpus, time.monotonic(), self._rapl.joules())

    def close(self) -> None:
        """See `ReadingSource`."""
        with contextlib.suppress(NvmlError):
            self._session.close()
        self._gpus, self._failed_seconds = {}, {}

    def _reading(self, uuid: str) -> GpuReading | None:
        gpu = self._gpus.get(uuid)
        begin = time.monotonic()
        if gpu is None or begin < self._failed_seconds.get(uuid, 0.0):
            return None
        try:
            counter = self._counters.millijoules(gpu)
            end = time.monotonic()
            reading = GpuReading(uuid, begin, end, counter, gpu.instant_power_watts())
            reading = reading._replace(others=self._others.get(uuid, NOT_ASKED))
        except NvmlError:
            self._failed_seconds[uuid] = begin + FAILED_SECONDS
            return None
        self._failed_seconds.pop(uuid, None)
        return reading


def _other_use(gpu: Gpu) -> OtherUse:
    try:
        pids = gpu.compute_processes()
    except NvmlError as error:
        return OtherUse(unknown=str(error))
    names, unknown = others_among(pids, os.getpid(), is_complete=lists_all_processes())
    return OtherUse(time.monotonic() if names else None, text_of(names), unknown)


def _gpu_by_mig_device(gpus: Sequence[Gpu]) -> dict[str, str]:
    parts: dict[str, str] = {}
    for gpu in gpus:
        with contextlib.suppress(NvmlError):
            parts |= dict.fromkeys(gpu.mig_device_uuids(), gpu.uuid)
    return parts
