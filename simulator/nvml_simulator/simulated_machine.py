"""Control of simulated GPUs: work, clocks, faults, other administrators, and their exact state."""

import ctypes
import os
from collections.abc import Sequence
from ctypes import byref, c_uint, c_uint64, c_void_p
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Self, get_args

from nvml_simulator.description import (
    ClockSetting,
    Description,
    SimulatedGpu,
    WorkRecord,
    clock_setting,
    simulated_gpu,
    work_record,
)
from nvml_simulator.models import ThermalModel
from nvml_simulator.simulated_library import (
    MAX_CLOCK_SETTINGS,
    MAX_INSTANCES,
    MAX_WORK_RECORDS,
    ClockSettingDescription,
    GpuDescriptionStructure,
    MachineDescription,
    WorkDescription,
    load,
)
from nvml_simulator.state_files import STATE_VARIABLE, Clock, Permission
from wattloop.errors import OperationError, UsageError

NVML_SUCCESS = 0
NVML_ERROR_UNINITIALIZED = 1
NVML_ERROR_INVALID_ARGUMENT = 2
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NOT_FOUND = 6
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
MAX_SECONDS = 1e9

GpuName = int | str
"""A GPU by index or UUID."""


class Machine:
    """The GPUs of one state file, open in this process. A context manager; thread-safe.

    Methods raise `UsageError` for a GPU that does not exist, an argument out of range, and what the machine's clock or
    model does not have.

    Raises:
        OperationError: The file does not exist, is not a valid state file, or is of another version.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).absolute()
        self._library = load()
        self._machine = c_void_p()
        code = self._library.wattloopSimulatorOpen(os.fsencode(self.path), byref(self._machine))
        if code == NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            raise OperationError(f"{self.path} is of another version of the simulator; create it again")
        if code != NVML_SUCCESS:
            raise OperationError(f"{self.path} is not a readable state file; create one with nvml_simulator.create")

    def close(self) -> None:
        """Close the file. The GPUs keep running."""
        if self._machine.value is not None:
            self._library.wattloopSimulatorClose(self._machine)
            self._machine = c_void_p()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def index(self, gpu: GpuName) -> int:
        """Return the index of a GPU."""
        count = self._description().gpu_count
        index: int = gpu if isinstance(gpu, int) else self._library.wattloopSimulatorIndex(self._machine, gpu.encode())
        if not 0 <= index < count:
            raise UsageError(
                f"found GPU {gpu!r}, expected an index of 0 to {count - 1} or the UUID of one in {self.path}"
            )
        return index

    def occupy(self, gpus: GpuName | Sequence[GpuName], work: float, intensity: float) -> float:
        """Work on one GPU, or on several together, and return when all are done.

        Args:
            gpus: The GPUs. A GPU that is done before the others waits for them at its waiting power, as in a
                data-parallel step. With the virtual clock all begin at the latest time among them and end together.
            work: Teraflops (10^12 operations) on each GPU. An A100 does 312 per second at its highest clock.
            intensity: Share of the GPU's dynamic power that the work draws, from 0 to 1.

        Returns:
            Duration in simulated seconds.

        Raises:
            OperationError: A GPU has 16 units of work already, or is lost; see `inject_fault`.
        """
        array = self._indices(gpus)
        begin = max(self._nanoseconds(index) for index in array)
        handle = c_void_p()
        code = self._library.wattloopSimulatorWorkBegin(
            self._machine, array, len(array), work, intensity, byref(handle)
        )
        if code == NVML_ERROR_INVALID_ARGUMENT:
            raise UsageError(
                f"found work {work}, intensity {intensity} on GPUs {list(array)}, expected 0 to 1e9 teraflops, "
                "an intensity from 0 to 1, and each GPU once"
            )
        if code == NVML_ERROR_GPU_IS_LOST:
            raise OperationError(f"a GPU of {list(array)} is lost (NVML code {code}); use another GPU")
        if code != NVML_SUCCESS:
            raise OperationError(
                f"a GPU of {list(array)} has too much work already (NVML code {code}); wait until it is done"
            )
        try:
            # In slices, so that signal handlers run and Ctrl-C ends the work.
            while not self._library.wattloopSimulatorWorkWait(self._machine, handle):
                pass
        finally:
            self._library.wattloopSimulatorWorkEnd(self._machine, handle)
        return (self._nanoseconds(array[0]) - begin) / 1e9

    def act_for(self, process: int) -> None:
        """Work from now on is that of another process, which NVML lists on the GPUs instead of this one.

        Args:
            process: Its id in this process's PID namespace; 0: this process again.
        """
        self._library.wattloopSimulatorActFor(process)

    def idle(self, gpus: GpuName | Sequence[GpuName], seconds: float) -> None:
        """Advance the virtual clock of idle GPUs to the latest time among them plus ``seconds``.

        With 0 seconds this is a barrier, with which a job begins on GPUs that other jobs have used.
        """
        array = self._indices(gpus)
        if not 0 <= seconds <= MAX_SECONDS:
            raise UsageError(f"found {seconds} idle seconds, expected 0 to {MAX_SECONDS:.0f}")
        code = self._library.wattloopSimulatorIdle(self._machine, array, len(array), round(seconds * 1e9))
        if code == NVML_ERROR_NOT_SUPPORTED:
            raise UsageError(f"the clock of {self.path} is not virtual, so time advances by itself")
        if code != NVML_SUCCESS:
            raise UsageError(f"found GPUs {list(array)}, expected each GPU once")

    def wait(self, gpu: GpuName, until_seconds: float) -> None:
        """Advance the virtual clock of a GPU to a time, at the power of blocking communication.

        That is what a GPU does that waits for a message of another one. A time in its past does nothing.
        """
        index = self.index(gpu)
        if not 0 <= until_seconds <= MAX_SECONDS:
            raise UsageError(f"found a wait until {until_seconds} s, expected 0 to {MAX_SECONDS:.0f}")
        code = self._library.wattloopSimulatorBlocked(self._machine, index, round(until_seconds * 1e9))
        if code != NVML_SUCCESS:
            raise UsageError(f"the clock of {self.path} is not virtual, so time advances by itself")

    def clock_settings(self, gpu: GpuName) -> tuple[ClockSetting, ...]:
        """Return the last 4,096 changes of the lock of a GPU's graphics clock, oldest first."""
        index = self.index(gpu)
        settings = (ClockSettingDescription * MAX_CLOCK_SETTINGS)()
        count = self._library.wattloopSimulatorClockSettings(self._machine, index, settings)
        return tuple(clock_setting(each) for each in settings[:count])

    def work_records(self, gpu: GpuName) -> tuple[WorkRecord, ...]:
        """Return the last 4,096 works of a GPU, oldest first; only with the virtual clock."""
        index = self.index(gpu)
        works = (WorkDescription * MAX_WORK_RECORDS)()
        count = self._library.wattloopSimulatorWorks(self._machine, index, works)
        return tuple(work_record(each) for each in works[:count])

    def clock_seconds(self, gpu: GpuName | None = None) -> float:
        """Return the simulated time since creation of a GPU, or of the machine.

        With the virtual clock, the time of the machine is the latest of its GPUs.
        """
        return self._nanoseconds(-1 if gpu is None else self.index(gpu)) / 1e9

    def inject_fault(
        self,
        function: str,
        *,
        code: int = NVML_SUCCESS,
        gpu: GpuName | None = None,
        first_call: int = 1,
        count: int | None = None,
        delay_seconds: float = 0.0,
    ) -> int:
        """Make NVML calls fail or hang in every process with this state file.

        A fault with code 15 on all functions of a GPU makes it a lost GPU, which accepts no work.

        Args:
            function: Name of the C function (``nvmlDeviceGetTotalEnergyConsumption``), or ``*`` for all functions.
            code: NVML return code; with 0 the call succeeds after the delay.
            gpu: Only calls on this GPU; None for all calls.
            first_call: First matching call that fails, counted from 1 from now on.
            count: Number of calls that fail; None for all from there on.
            delay_seconds: Real time before the call returns. `clear_fault` ends a delay early.

        Returns:
            The ticket for `clear_fault`.

        Raises:
            OperationError: There are 32 faults already.
        """
        if first_call < 1 or (count is not None and count < 1) or not 0 <= delay_seconds <= MAX_SECONDS:
            raise UsageError(
                f"found first_call {first_call}, count {count}, delay_seconds {delay_seconds}, expected calls from 1, "
                f"a count of at least 1 and a delay of 0 to {MAX_SECONDS:.0f}"
            )
        ticket = c_uint64()
        index = -1 if gpu is None else self.index(gpu)
        delay_ns = round(delay_seconds * 1e9)
        answer = self._library.wattloopSimulatorFault(
            self._machine, function.encode(), index, code, first_call, count or 0, delay_ns, byref(ticket)
        )
        if answer in {NVML_ERROR_NOT_FOUND, NVML_ERROR_INVALID_ARGUMENT}:
            raise UsageError(f"found function {function!r}, expected '*' or one of {', '.join(self.functions())}")
        if answer != NVML_SUCCESS:
            raise OperationError("there are 32 faults already; clear one")
        return ticket.value

    def clear_fault(self, ticket: int) -> None:
        """End a fault; calls that it delays return immediately."""
        self._library.wattloopSimulatorClearFault(self._machine, ticket)

    def clear_faults(self) -> None:
        """End all faults."""
        self._library.wattloopSimulatorClearFault(self._machine, 0)

    def set_power_limit_as_another_actor(self, gpu: GpuName, watts: float) -> None:
        """Change a limit without NVML, as another administrator would."""
        index = self.index(gpu)
        if self._library.wattloopSimulatorSetPowerLimit(self._machine, index, round(watts * 1e3)) != NVML_SUCCESS:
            model = self._description().model.decode()
            raise UsageError(f"found a limit of {watts} W, expected one within the range of {model!r}")

    def set_thermal_model(self, model: ThermalModel | None) -> None:
        """Give all GPUs a thermal model, or remove it with None; new GPUs have none."""
        thermal = model or ThermalModel()
        start = thermal.ambient_celsius if thermal.start_celsius is None else thermal.start_celsius
        for index in range(self._description().gpu_count):
            self._library.wattloopSimulatorSetThermal(
                self._machine,
                index,
                0 if model is None else round(thermal.time_constant_seconds * 1e9),
                round(thermal.kelvin_per_watt * 1e3),
                round(thermal.leakage_watts_per_kelvin * 1e3),
                round(thermal.ambient_celsius * 1e3),
                round(start * 1e3),
            )

    def partition(self, gpu: GpuName, mig_devices: int) -> None:
        """Partition a GPU into 1 (7g), 2 (3g), 3 (2g) or 4 to 7 (1g) equal MIG devices; 0 disables MIG."""
        index = self.index(gpu)
        if not 0 <= mig_devices <= MAX_INSTANCES:
            raise UsageError(f"found {mig_devices} MIG devices, expected 0 (off) to {MAX_INSTANCES}")
        if self._library.wattloopSimulatorPartition(self._machine, index, mig_devices) != NVML_SUCCESS:
            model = self._description().model.decode()
            raise UsageError(f"found MIG devices on {model!r}, which has no MIG; A100, H100 and H200 have it")

    def reset_energy_counter(self, gpu: GpuName) -> None:
        """Reset the energy counter of a GPU to zero, as a reset of the GPU does."""
        self._library.wattloopSimulatorResetCounter(self._machine, self.index(gpu))

    def stop_driver(self, *, stale_code: int = NVML_ERROR_UNINITIALIZED) -> None:
        """Unload the driver.

        Until `start_driver`, ``nvmlInit`` fails with NVML_ERROR_DRIVER_NOT_LOADED.

        Args:
            stale_code: Code that calls except ``nvmlShutdown`` return in programs that have NVML open, until they
                initialize it again; never `NVML_SUCCESS`. Observed in practice besides the default: 15 (GPU is lost)
                and 999 (unknown error, in a container that lost its devices).
        """
        if stale_code == NVML_SUCCESS:
            raise UsageError(
                "found stale_code 0, expected an NVML error, because no call succeeds while the driver is stopped"
            )
        self._library.wattloopSimulatorStopDriver(self._machine, stale_code)

    def start_driver(self) -> None:
        """Load the driver if it is stopped: energy counters from zero, default limits and clocks.

        Energy that the GPUs used meanwhile is in no counter. Persistence mode remains, as with the
        vendor's persistence daemon.
        """
        self._library.wattloopSimulatorStartDriver(self._machine)

    def restart_driver(self, *, stale_code: int = NVML_ERROR_UNINITIALIZED) -> None:
        """Stop the driver and start it; see `stop_driver` and `start_driver`."""
        self.stop_driver(stale_code=stale_code)
        self.start_driver()

    def functions(self) -> tuple[str, ...]:
        """Return the NVML functions of the library."""
        return tuple(name for name, _ in self._calls())

    def describe(self) -> Description:
        """Return the exact present state of the machine."""
        machine = self._description()
        gpus = [self.describe_gpu(index) for index in range(machine.gpu_count)]
        return Description(
            model=machine.model.decode(),
            clock=get_args(Clock)[machine.clock_mode],
            scale=machine.scale,
            permission=get_args(Permission)[machine.permission],
            driver_loaded=bool(machine.driver_loaded),
            seed=machine.seed,
            gpus=tuple(gpus),
            calls={name: calls for name, calls in self._calls() if calls},
        )

    def describe_gpu(self, gpu: GpuName) -> SimulatedGpu:
        """Return the exact present state of one GPU."""
        index = self.index(gpu)
        found = GpuDescriptionStructure()
        self._library.wattloopSimulatorDescribeGpu(self._machine, index, byref(found))
        return simulated_gpu(index, found)

    def _description(self) -> MachineDescription:
        description = MachineDescription()
        self._library.wattloopSimulatorDescribe(self._machine, byref(description))
        return description

    def _nanoseconds(self, index: int) -> int:
        nanoseconds = c_uint64()
        self._library.wattloopSimulatorMachineTime(self._machine, index, byref(nanoseconds))
        return nanoseconds.value

    def _calls(self) -> list[tuple[str, int]]:
        calls = c_uint64()
        found: list[tuple[str, int]] = []
        while name := self._library.wattloopSimulatorCalls(self._machine, len(found), byref(calls)):
            found.append((name.decode(), calls.value))
        return found

    def _indices(self, gpus: GpuName | Sequence[GpuName]) -> ctypes.Array[c_uint]:
        names: Sequence[GpuName] = [gpus] if isinstance(gpus, int | str) else gpus
        indices = [self.index(gpu) for gpu in names]
        return (c_uint * len(indices))(*indices)


def machine() -> Machine:
    """Return the machine of ``$WATTLOOP_SIMULATED_GPUS_STATE``, opened once per file.

    Raises:
        UsageError: The variable is not set.
        OperationError: The file is not a valid state file.
    """
    path = os.environ.get(STATE_VARIABLE)
    if not path:
        raise UsageError(f"{STATE_VARIABLE} is not set; set it to the state file that nvml_simulator.create returned")
    found = Path(path)
    # With the inode, because a new file at the same path is another machine.
    return _open(path, found.stat().st_ino if found.exists() else 0)


@lru_cache(maxsize=8)
def _open(path: str, _inode: int) -> Machine:
    return Machine(path)


def occupy(gpus: GpuName | Sequence[GpuName], work: float, intensity: float) -> float:
    """See `Machine.occupy`."""
    return machine().occupy(gpus, work, intensity)


def clock_seconds(gpu: GpuName | None = None) -> float:
    """See `Machine.clock_seconds`."""
    return machine().clock_seconds(gpu)


def describe(path: Path | str) -> Description:
    """Return the exact state of the GPUs of a state file; see `Machine.describe`."""
    with Machine(path) as opened:
        return opened.describe()
