"""An initialised NVML."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from wattloop.gpus.nvml.gpu import Gpu
from wattloop.gpus.nvml.nvml_errors import NvmlError
from wattloop.gpus.nvml.pynvml_binding import invoke


class Session:
    """NVML from `open` to `close`, or in a ``with`` statement. Sessions may overlap: NVML counts references.

    Example:
        ``with Session() as nvml: print([gpu.name for gpu in nvml.gpus()])``
    """

    def __init__(self) -> None:
        self._is_open = False

    def open(self) -> Self:
        """Initialise NVML.

        Raises:
            LibraryMissing: pynvml, the library or the driver is missing.
            NvmlError: NVML returned another error.
        """
        if not self._is_open:
            invoke("nvmlInit")
            self._is_open = True
        return self

    def close(self) -> None:
        """Shut NVML down; the session's GPUs become invalid. A second call does nothing."""
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
        """The GPUs visible to this process, by index."""
        return tuple(self._gpu(invoke("nvmlDeviceGetHandleByIndex", index)) for index in self._indices())

    def gpus_or_errors(self) -> tuple[Gpu | NvmlError, ...]:
        """The same, with NVML's error in place of a GPU without a handle, such as one that fell off the bus."""

        def gpu_or_error(index: int) -> Gpu | NvmlError:
            try:
                return self._gpu(invoke("nvmlDeviceGetHandleByIndex", index))
            except NvmlError as error:
                return error

        return tuple(gpu_or_error(index) for index in self._indices())

    def gpu(self, uuid: str) -> Gpu:
        """The GPU with this UUID.

        Raises:
            GpuNotFound: No such GPU is visible to this process.
        """
        return self._gpu(invoke("nvmlDeviceGetHandleByUUID", uuid.encode(), gpu=uuid))

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
