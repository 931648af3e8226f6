"""NVML, initialised for as long as it is needed."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from wattloop.nvml.errors import NvmlError
from wattloop.nvml.gpu import Gpu
from wattloop.nvml.library import invoke


class Session:
    """NVML from `open` to `close`, or in a ``with`` statement. Sessions in one process may overlap: NVML counts them.

    Example:
        ``with Session() as nvml: print([gpu.name for gpu in nvml.gpus()])``
    """

    def __init__(self) -> None:
        self._is_open = False

    def open(self) -> Self:
        """Initialises NVML.

        Raises:
            LibraryMissing: pynvml, the library or the driver is not there.
            NvmlError: NVML refused for another reason.
        """
        if not self._is_open:
            invoke("nvmlInit")
            self._is_open = True
        return self

    def close(self) -> None:
        """Lets NVML go; its GPUs answer no more. Closing twice is harmless."""
        if self._is_open:
            self._is_open = False
            invoke("nvmlShutdown")

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that this process sees, by index."""
        return tuple(self._gpu(invoke("nvmlDeviceGetHandleByIndex", index)) for index in self._indices())

    def gpus_or_errors(self) -> tuple[Gpu | NvmlError, ...]:
        """The same, with NVML's word in place of a GPU that it can't even name: one that has fallen off the bus."""

        def gpu_or_error(index: int) -> Gpu | NvmlError:
            try:
                return self._gpu(invoke("nvmlDeviceGetHandleByIndex", index))
            except NvmlError as error:
                return error

        return tuple(gpu_or_error(index) for index in self._indices())

    def gpu(self, uuid: str) -> Gpu:
        """The GPU of that UUID.

        Raises:
            GpuNotFound: There is none, or this process does not see it.
        """
        return self._gpu(invoke("nvmlDeviceGetHandleByUUID", uuid.encode(), gpu=uuid))

    def driver_version(self) -> str:
        """Of the kernel driver: ``580.95.05``."""
        return str(invoke("nvmlSystemGetDriverVersion"))

    def _indices(self) -> range:
        return range(int(invoke("nvmlDeviceGetCount")))

    def _gpu(self, handle: Any) -> Gpu:
        uuid = str(invoke("nvmlDeviceGetUUID", handle))
        return Gpu(
            uuid=uuid,
            index=int(invoke("nvmlDeviceGetIndex", handle, gpu=uuid)),
            name=str(invoke("nvmlDeviceGetName", handle, gpu=uuid)),
            handle=handle,
        )
