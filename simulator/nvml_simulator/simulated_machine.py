"""Driving simulated GPUs: work, clocks, faults, other actors, and the truth about them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import byref, c_uint, c_uint64, c_void_p
from pathlib import Path
from types import TracebackType
from typing import Self, get_args

from nvml_simulator.description import Description, simulated_gpu
from nvml_simulator.library import MAX_INSTANCES, GpuDescription, MachineDescription, load
from nvml_simulator.state import Clock, Permission
from wattloop.errors import OperationError, UsageError

NVML_SUCCESS = 0
NVML_ERROR_UNINITIALIZED = 1
NVML_ERROR_INVALID_ARGUMENT = 2
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NOT_FOUND = 6
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
FOR_EVER_SECONDS = 1e9

GpuName = int | str
"""A GPU by its index or its UUID."""


class Machine:
    """The GPUs of one state file, open in this process. A context manager; threads may share it.

    Raises:
        OperationError: The file does not exist, is no state of simulated GPUs, or is another version's.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).absolute()
        self._library = load()
        self._machine = c_void_p()
        code = self._library.wattloopSimulatorOpen(os.fsencode(self.path), byref(self._machine))
        if code == NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            raise OperationError(f"{self.path} was made by another version of the simulator; create it anew")
        if code != NVML_SUCCESS:
            raise OperationError(f"{self.path} is no readable state of simulated GPUs; nvml_simulator.create makes one")

    def close(self) -> None:
        """Lets go of the file. The GPUs go on."""
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
        """The index of a GPU given by index or UUID.

        Raises:
            UsageError: There is no such GPU on this machine.
        """
        count = self._description().gpu_count
        index: int = gpu if isinstance(gpu, int) else self._library.wattloopSimulatorIndex(self._machine, gpu.encode())
        if not 0 <= index < count:
            raise UsageError(
                f"found GPU {gpu!r}, expected an index of 0 to {count - 1} or the UUID of one in {self.path}"
            )
        return index

    def occupy(self, gpus: GpuName | Sequence[GpuName], work: float, intensity: float) -> float:
        """Works on one GPU, or on several together, and returns when the last is done.

        Args:
            gpus: Which. Of several, one that is done earlier waits for the others at its waiting power, as in a
                data-parallel step. With the virtual clock they begin at the latest time among them and end together.
            work: Teraflops (10^12 operations) on each GPU: an A100 does 312 in a second at its highest clock.
            intensity: Share of the GPU's dynamic power that the work draws, 0 to 1.

        Returns:
            The simulated seconds it took.

        Raises:
            UsageError: No such GPU, one named twice, or a work or an intensity out of range.
            OperationError: A GPU has 16 pieces of work on it already, or is lost: see `inject_fault`.
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
                "an intensity of 0 to 1, and every GPU once"
            )
        if code == NVML_ERROR_GPU_IS_LOST:
            raise OperationError(f"a GPU of {list(array)} is lost (NVML code {code}); take the work elsewhere")
        if code != NVML_SUCCESS:
            raise OperationError(
                f"a GPU of {list(array)} has too much work on it already (NVML code {code}); wait for it"
            )
        try:
            # In slices, so that a signal's handler has its turn: Ctrl-C ends the work.
            while not self._library.wattloopSimulatorWorkWait(self._machine, handle):
                pass
        finally:
            self._library.wattloopSimulatorWorkEnd(self._machine, handle)
        return (self._nanoseconds(array[0]) - begin) / 1e9

    def idle(self, gpus: GpuName | Sequence[GpuName], seconds: float) -> None:
        """With the virtual clock: brings the GPUs to the latest time among them plus ``seconds``, idle.

        With 0 seconds it is a barrier that costs nothing but idle power: how a job begins on GPUs that others used.

        Raises:
            UsageError: No such GPU, negative seconds, or another clock, on which time passes by itself.
        """
        array = self._indices(gpus)
        if not 0 <= seconds <= FOR_EVER_SECONDS:
            raise UsageError(f"found {seconds} idle seconds, expected 0 to {FOR_EVER_SECONDS:.0f}")
        code = self._library.wattloopSimulatorIdle(self._machine, array, len(array), round(seconds * 1e9))
        if code == NVML_ERROR_NOT_SUPPORTED:
            raise UsageError(f"the clock of {self.path} is not virtual: time passes by itself there")
        if code != NVML_SUCCESS:
            raise UsageError(f"found GPUs {list(array)}, expected every GPU once")

    def clock_seconds(self, gpu: GpuName | None = None) -> float:
        """Simulated time since creation: of one GPU, or of the machine (virtual clock: the latest of its GPUs)."""
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
        """Makes NVML calls fail, or hang, in every process on this state.

        Every function of one GPU with code 15 is a lost GPU: it takes no work any more either.

        Args:
            function: The C function's name (``nvmlDeviceGetTotalEnergyConsumption``), or ``*`` for every one.
            code: The NVML return code it answers; 0 lets it answer as ever, after the delay.
            gpu: Only calls on this GPU; None for all calls.
            first_call: The first matching call that is struck, counted from 1 from now on.
            count: How many calls are struck; None for every one from there on.
            delay_seconds: Real time before the call answers. `clear_fault` ends a delay early.

        Returns:
            A ticket for `clear_fault`.

        Raises:
            UsageError: The library offers no such function, or a number is out of range.
            OperationError: There are 32 faults already.
        """
        if first_call < 1 or (count is not None and count < 1) or not 0 <= delay_seconds <= FOR_EVER_SECONDS:
            raise UsageError(
                f"found first_call {first_call}, count {count}, delay_seconds {delay_seconds}, expected calls from 1, "
                f"a count of at least 1 and a delay of 0 to {FOR_EVER_SECONDS:.0f}"
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
            raise OperationError("there are 32 faults already; clear some")
        return ticket.value

    def clear_fault(self, ticket: int) -> None:
        """Ends one fault; calls that it holds back answer now."""
        self._library.wattloopSimulatorClearFault(self._machine, ticket)

    def clear_faults(self) -> None:
        """Ends all faults."""
        self._library.wattloopSimulatorClearFault(self._machine, 0)

    def set_power_limit_as_another_actor(self, gpu: GpuName, watts: float) -> None:
        """Changes a limit past NVML, as another administrator on the machine would.

        Raises:
            UsageError: No such GPU, or a limit out of the model's range.
        """
        index = self.index(gpu)
        if self._library.wattloopSimulatorSetPowerLimit(self._machine, index, round(watts * 1e3)) != NVML_SUCCESS:
            model = self._description().model.decode()
            raise UsageError(f"found a limit of {watts} W, expected one within the range of {model!r}")

    def partition(self, gpu: GpuName, mig_devices: int) -> None:
        """Cuts a GPU into MIG devices, as large as so many equal ones can be; 0 switches MIG off.

        Args:
            gpu: Which.
            mig_devices: 1 (7g), 2 (3g), 3 (2g) or 4 to 7 (1g).

        Raises:
            UsageError: No such GPU, more than 7 devices, or a model without MIG (A40, V100).
        """
        index = self.index(gpu)
        if not 0 <= mig_devices <= MAX_INSTANCES:
            raise UsageError(f"found {mig_devices} MIG devices, expected 0 (off) to {MAX_INSTANCES}")
        if self._library.wattloopSimulatorPartition(self._machine, index, mig_devices) != NVML_SUCCESS:
            raise UsageError(
                f"found MIG devices on {self._description().model.decode()!r}, which has no MIG; A100, H100, H200 do"
            )

    def reset_energy_counter(self, gpu: GpuName) -> None:
        """Has a GPU's energy counter begin at zero again, as after a reset of the GPU; nothing else changes.

        Raises:
            UsageError: There is no such GPU.
        """
        self._library.wattloopSimulatorResetCounter(self._machine, self.index(gpu))

    def stop_driver(self, *, stale_code: int = NVML_ERROR_UNINITIALIZED) -> None:
        """Unloads the driver: ``nvmlInit`` answers NVML_ERROR_DRIVER_NOT_LOADED until `start_driver`.

        Args:
            stale_code: What programs that have NVML open are answered by every call but ``nvmlShutdown``, until they
                initialise it anew; never `NVML_SUCCESS`. Seen in the field besides the default: 15 (GPU is lost), 999
                (unknown error, where a container lost its devices).

        Raises:
            UsageError: The code is 0.
        """
        if stale_code == NVML_SUCCESS:
            raise UsageError("found stale_code 0, expected an NVML error: a driver that is stopped answers no call")
        self._library.wattloopSimulatorStopDriver(self._machine, stale_code)

    def start_driver(self) -> None:
        """Loads the driver where it is stopped: energy counters from zero, limits and clocks as the vendor ships them.

        What GPUs drew meanwhile is in no counter. Persistence mode stays, as with the vendor's daemon for it.
        """
        self._library.wattloopSimulatorStartDriver(self._machine)

    def restart_driver(self, *, stale_code: int = NVML_ERROR_UNINITIALIZED) -> None:
        """Stops the driver and starts it at once; see both."""
        self.stop_driver(stale_code=stale_code)
        self.start_driver()

    def functions(self) -> tuple[str, ...]:
        """The NVML functions that the library offers."""
        return tuple(name for name, _ in self._calls())

    def describe(self) -> Description:
        """The truth about every GPU as of now."""
        machine = self._description()
        gpus = []
        for index in range(machine.gpu_count):
            found = GpuDescription()
            self._library.wattloopSimulatorDescribeGpu(self._machine, index, byref(found))
            gpus.append(simulated_gpu(index, found))
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
