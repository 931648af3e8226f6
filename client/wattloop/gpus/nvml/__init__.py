"""A typed interface to NVML, in watts, joules and megahertz. The only package that imports pynvml, on first use."""

from wattloop.gpus.nvml.gpu import EnergyCounters, Gpu, Session
from wattloop.gpus.nvml.pynvml_binding import (
    GpuLost,
    GpuNotFound,
    InvalidArgument,
    LibraryMissing,
    NoPermission,
    NotSupported,
    NvmlError,
    driver_load,
    lists_all_processes,
)

__all__ = [
    "EnergyCounters",
    "Gpu",
    "GpuLost",
    "GpuNotFound",
    "InvalidArgument",
    "LibraryMissing",
    "NoPermission",
    "NotSupported",
    "NvmlError",
    "Session",
    "driver_load",
    "lists_all_processes",
]
