"""NVIDIA's management library, typed and in our units. The only importer of pynvml, which it loads when first used."""

from wattloop.nvml.driver import driver_load
from wattloop.nvml.errors import (
    GpuLost,
    GpuNotFound,
    InvalidArgument,
    LibraryMissing,
    NoPermission,
    NotSupported,
    NvmlError,
)
from wattloop.nvml.gpu import Gpu
from wattloop.nvml.session import Session

__all__ = [
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
]
