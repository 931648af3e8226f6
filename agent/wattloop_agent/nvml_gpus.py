"""NVML for a process that never ends: opened when first needed, opened anew when the driver was, errors as refusals."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wattloop.nvml import (
    Gpu,
    GpuLost,
    GpuNotFound,
    InvalidArgument,
    LibraryMissing,
    NoPermission,
    NotSupported,
    NvmlError,
    Session,
)
from wattloop_agent.refusal import Reason, Refused

_REASONS: tuple[tuple[type[NvmlError], Reason], ...] = (
    (NoPermission, Reason.NOT_PERMITTED),
    (NotSupported, Reason.NOT_SUPPORTED),
    (InvalidArgument, Reason.OUT_OF_RANGE),
    (GpuNotFound, Reason.UNKNOWN_GPU),
    (GpuLost, Reason.GPU_LOST),
    (LibraryMissing, Reason.NO_DRIVER),
)
_UNINITIALIZED = 1
_UNKNOWN = 999


class NvmlGpus:
    """The GPUs of this machine, by uuid.

    Args:
        library: The ``libnvidia-ml.so.1`` to load in place of the one that the system finds.
    """

    def __init__(self, library: Path | None = None) -> None:
        self._library = library
        self._session: Session | None = None
        self._gpus: dict[str, Gpu] = {}

    def gpu(self, uuid: str) -> Gpu:
        """The GPU of that uuid.

        Raises:
            Refused: There is none, or no driver.
        """
        gpus = self._known()
        if uuid not in gpus:
            raise Refused(
                Reason.UNKNOWN_GPU, f"GPU {uuid}: there is none; this machine has {', '.join(gpus) or 'none'}"
            )
        return gpus[uuid]

    def all(self) -> list[Gpu]:
        """All GPUs, by index.

        Raises:
            Refused: There is no driver, or it does not say.
        """
        return sorted(self._known().values(), key=lambda gpu: gpu.index)

    def _known(self) -> dict[str, Gpu]:
        if self._session is None:
            with self.refusing():
                self._open()
        return self._gpus

    def _open(self) -> None:
        if self._library is not None:
            try:
                # By its soname it then is the one that pynvml asks the linker for.
                ctypes.CDLL(str(self._library))
            except OSError as error:
                raise Refused(Reason.NO_DRIVER, f"{self._library}: can't be loaded: {error}") from error
        session = Session().open()
        try:
            self._gpus = {gpu.uuid: gpu for gpu in session.gpus()}
        except BaseException:
            session.close()
            raise
        self._session = session

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Within the block, what NVML refuses is `Refused`.

        Raises:
            Refused: With NVML's own words.
        """
        try:
            yield
        except NvmlError as error:
            if isinstance(error, (LibraryMissing, GpuLost)) or error.code in {_UNINITIALIZED, _UNKNOWN}:
                # A driver that was restarted knows nothing of the handles of before.
                self.close()
            reason = next((reason for kind, reason in _REASONS if isinstance(error, kind)), Reason.DEVICE_FAILED)
            raise Refused(reason, str(error)) from error

    def close(self) -> None:
        """Let NVML go; the next question opens it again."""
        session, self._session, self._gpus = self._session, None, {}
        if session is not None:
            try:
                session.close()
            except NvmlError:
                # It was closed by what made us forget it.
                return
