"""The simulated library in this process, loaded by path so that pynvml finds it by its soname."""

import ctypes
from ctypes import POINTER, c_char, c_char_p, c_double, c_int, c_int64, c_uint, c_uint32, c_uint64, c_void_p
from functools import cache

from nvml_simulator.compilation import build_library

UUID_BYTES = 48
MAX_GRAPHICS_CLOCKS = 256
MAX_MEMORY_CLOCKS = 4
MAX_INSTANCES = 7
MAX_CLOCK_SETTINGS = 4096
MAX_WORK_RECORDS = 4096


class MachineDescription(ctypes.Structure):
    """`struct machine_description` of inspection.c."""

    _fields_ = (
        ("model", c_char * 16),
        ("gpu_count", c_uint32),
        ("clock_mode", c_uint32),
        ("permission", c_uint32),
        ("driver_loaded", c_uint32),
        ("scale", c_double),
        ("seed", c_uint64),
    )


class InstanceDescription(ctypes.Structure):
    """`struct instance` of layout.h."""

    _fields_ = (
        ("uuid", c_char * UUID_BYTES),
        ("gpu_instance_id", c_uint32),
        ("compute_slices", c_uint32),
        ("memory_slices", c_uint32),
    )


class GpuDescriptionStructure(ctypes.Structure):
    """`struct gpu_description` of inspection.c."""

    _fields_ = (
        ("uuid", c_char * UUID_BYTES),
        ("time_ns", c_uint64),
        ("energy_uj", c_uint64),
        ("busy_ns", c_uint64),
        ("counter_mj", c_uint64),
        ("limit_mw", c_uint32),
        ("locked_min_mhz", c_uint32),
        ("locked_max_mhz", c_uint32),
        ("locked_memory_min_mhz", c_uint32),
        ("locked_memory_max_mhz", c_uint32),
        ("application_mhz", c_uint32),
        ("application_memory_mhz", c_uint32),
        ("graphics_mhz", c_uint32),
        ("memory_mhz", c_uint32),
        ("power_mw", c_uint32),
        ("has_temperature", c_uint32),
        ("temperature_nc", c_int64),
        ("instance_count", c_uint32),
        ("instances", InstanceDescription * MAX_INSTANCES),
    )


class ClockSettingDescription(ctypes.Structure):
    """`struct clock_setting` of layout.h."""

    _fields_ = (("time_ns", c_uint64), ("min_mhz", c_uint32), ("max_mhz", c_uint32))


class WorkDescription(ctypes.Structure):
    """`struct work_record` of layout.h."""

    _fields_ = (
        ("begin_ns", c_uint64),
        ("end_ns", c_uint64),
        ("begin_uj", c_uint64),
        ("end_uj", c_uint64),
        ("graphics_mhz", c_uint64),
    )


class ModelDescription(ctypes.Structure):
    """`struct model_description` of inspection.c."""

    _fields_ = (
        ("key", c_char * 16),
        ("name", c_char * 64),
        ("memory_bytes", c_uint64),
        ("megaflops_per_second", c_uint64),
        ("power_min_mw", c_uint32),
        ("power_max_mw", c_uint32),
        ("power_default_mw", c_uint32),
        ("power_idle_mw", c_uint32),
        ("power_waiting_mw", c_uint32),
        ("has_energy_counter", c_uint32),
        ("graphics_clock_count", c_uint32),
        ("memory_clock_count", c_uint32),
        ("graphics_clocks_mhz", c_uint32 * MAX_GRAPHICS_CLOCKS),
        ("memory_clocks_mhz", c_uint32 * MAX_MEMORY_CLOCKS),
    )


_SIGNATURES = {
    "wattloopSimulatorCreate": (c_int, c_char_p, c_char_p, c_uint, c_uint, c_double, c_uint, c_uint64, c_int),
    "wattloopSimulatorOpen": (c_int, c_char_p, POINTER(c_void_p)),
    "wattloopSimulatorClose": (None, c_void_p),
    "wattloopSimulatorIndex": (c_int, c_void_p, c_char_p),
    "wattloopSimulatorWork": (c_int, c_void_p, POINTER(c_uint), c_uint, c_double, c_double),
    "wattloopSimulatorWorkBegin": (c_int, c_void_p, POINTER(c_uint), c_uint, c_double, c_double, POINTER(c_void_p)),
    "wattloopSimulatorWorkWait": (c_int, c_void_p, c_void_p),
    "wattloopSimulatorWorkEnd": (None, c_void_p, c_void_p),
    "wattloopSimulatorActFor": (None, c_int),
    "wattloopSimulatorIdle": (c_int, c_void_p, POINTER(c_uint), c_uint, c_uint64),
    "wattloopSimulatorBlocked": (c_int, c_void_p, c_uint, c_uint64),
    "wattloopSimulatorMachineTime": (c_int, c_void_p, c_int, POINTER(c_uint64)),
    "wattloopSimulatorFault": (
        c_int, c_void_p, c_char_p, c_int, c_int, c_uint64, c_uint64, c_uint64, POINTER(c_uint64)
    ),
    "wattloopSimulatorClearFault": (None, c_void_p, c_uint64),
    "wattloopSimulatorSetPowerLimit": (c_int, c_void_p, c_uint, c_uint),
    "wattloopSimulatorSetThermal": (c_int, c_void_p, c_uint, c_uint64, c_uint, c_uint, c_int, c_int),
    "wattloopSimulatorPartition": (c_int, c_void_p, c_uint, c_uint),
    "wattloopSimulatorResetCounter": (c_int, c_void_p, c_uint),
    "wattloopSimulatorStopDriver": (None, c_void_p, c_int),
    "wattloopSimulatorStartDriver": (None, c_void_p),
    "wattloopSimulatorAbandonLock": (None, c_void_p, c_uint),
    "wattloopSimulatorDescribe": (None, c_void_p, POINTER(MachineDescription)),
    "wattloopSimulatorDescribeGpu": (c_int, c_void_p, c_uint, POINTER(GpuDescriptionStructure)),
    "wattloopSimulatorClockSettings": (c_uint, c_void_p, c_uint, POINTER(ClockSettingDescription)),
    "wattloopSimulatorWorks": (c_uint, c_void_p, c_uint, POINTER(WorkDescription)),
    "wattloopSimulatorCalls": (c_char_p, c_void_p, c_uint, POINTER(c_uint64)),
    "wattloopSimulatorModel": (c_int, c_uint, POINTER(ModelDescription)),
    "wattloopSimulatorCurve": (c_int, c_uint, c_uint, c_double, POINTER(c_uint), POINTER(c_uint64))
}  # fmt: skip


@cache
def load() -> ctypes.CDLL:
    """Load the simulated library into this process; build it first if needed.

    The real pynvml then gets this library when it loads ``libnvidia-ml.so.1``, because the dynamic
    linker finds a loaded library by its soname. Must be called before any other use of NVML.

    Raises:
        OperationError: The build failed.
    """
    library = ctypes.CDLL(str(build_library()))
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library
