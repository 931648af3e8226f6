"""NVML for a long-running process: opened on first use, reopened after a driver restart.

NVML's errors become `RequestError`.
"""

import ctypes
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattloop.gpus.nvml import (
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
from wattloop.gpus.nvml.pynvml_binding import nvml_error
from wattloop_agent.gpu_setting import AllowedRange, GpuSetting
from wattloop_agent.refusals import Reason, RequestError

logger = logging.getLogger(__name__)

# Delay until NVML is reopened to find a GPU that it could not enumerate.
LOST_SECONDS = 10.0
# The shortest time between two openings of NVML that errors cause. On a node of eight GPUs an opening
# may take seconds, so that a caller's requests to a GPU that fails must not each cause one.
REOPEN_SECONDS = 1.0

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


@dataclass(frozen=True)
class _LostGpu(Gpu):
    """A GPU that NVML no longer enumerates, for example because it fell off the bus."""

    error: NvmlError

    def _invoke(self, _: str, *__: object) -> Any:
        raise nvml_error(self.error.call, self.error.code, self.error.text, gpu=self.uuid)


class NvmlGpus:
    """The GPUs of this machine, by uuid; methods raise `RequestError` with NVML's error, or that there is no such GPU.

    Args:
        library: The ``libnvidia-ml.so.1`` to load; None: the system's.

    Attributes:
        unnamed: By index, NVML's error for each GPU that it could not enumerate since the start, so
            that its uuid is unknown. NVML is reopened every `LOST_SECONDS` to find it.
    """

    def __init__(self, library: Path | None = None) -> None:
        self._library = library
        self._session: Session | None = None
        self._allowed: dict[tuple[str, GpuSetting], AllowedRange] = {}
        self._gpus: dict[str, Gpu] = {}
        self._enumerated: dict[int, Gpu] = {}
        self.unnamed: Mapping[int, str] = {}
        self._failed: frozenset[int] = frozenset()
        self._open_again_seconds = math.inf
        self._opened_seconds = -math.inf

    def gpu(self, uuid: str) -> Gpu:
        """The GPU of that uuid."""
        gpus = self._known()
        if uuid not in gpus:
            lost = "".join(f"; NVML can't enumerate GPU {index}: {error}" for index, error in self.unnamed.items())
            raise RequestError(
                Reason.UNKNOWN_GPU, f"GPU {uuid} does not exist; this machine has {', '.join(gpus) or 'none'}{lost}"
            )
        return gpus[uuid]

    def all(self) -> list[Gpu]:
        """All GPUs, by index."""
        return sorted(self._known().values(), key=lambda gpu: gpu.index)

    def allowed(self, uuid: str, setting: GpuSetting) -> AllowedRange:
        """The values of a setting that a GPU accepts; read once, since they do not change."""
        gpu, key = self.gpu(uuid), (uuid, setting)
        if key not in self._allowed:
            with self.request_errors():
                if setting is GpuSetting.POWER_LIMIT:
                    self._allowed[key] = AllowedRange(*gpu.power_limit_range_watts())
                else:
                    graphics = setting is GpuSetting.GRAPHICS_CLOCK
                    clocks = gpu.graphics_clocks_megahertz() if graphics else gpu.memory_clocks_megahertz()
                    steps = tuple(sorted(float(clock) for clock in clocks))
                    self._allowed[key] = AllowedRange(steps[0], steps[-1], steps)
        return self._allowed[key]

    def _known(self) -> dict[str, Gpu]:
        if time.monotonic() >= self._open_again_seconds:
            self.close()
        if self._session is None:
            with self.request_errors():
                self._open()
        return self._gpus

    def _open(self) -> None:
        if self._library is not None:
            try:
                # pynvml then gets this library from the linker, by its soname.
                ctypes.CDLL(str(self._library))
            except OSError as error:
                raise RequestError(Reason.NO_DRIVER, f"{self._library}: can't be loaded: {error}") from error
        session = Session().open()
        try:
            self._gpus = self._enumerate(session.gpus_or_errors())
        except BaseException:
            session.close()
            raise
        self._session = session
        self._opened_seconds = time.monotonic()

    def _enumerate(self, answers: Sequence[Gpu | NvmlError]) -> dict[str, Gpu]:
        gpus = {answer.uuid: answer for answer in answers if isinstance(answer, Gpu)}
        errors = {index: answer for index, answer in enumerate(answers) if isinstance(answer, NvmlError)}
        unnamed: dict[int, str] = {}
        for index, error in errors.items():
            if not gpus:
                raise error
            before = self._enumerated.get(index)
            if before is not None and before.uuid not in gpus:
                gpus[before.uuid] = _LostGpu(before.uuid, index, before.name, None, error)
            else:
                unnamed[index] = str(error)
            if index not in self._failed:
                logger.error("NVML can't enumerate GPU %d: %s", index, error)
        for index in self._failed - frozenset(errors):
            logger.info("NVML enumerates GPU %d again", index)
        self._enumerated = {gpu.index: gpu for gpu in gpus.values()}
        self._failed, self.unnamed = frozenset(errors), unnamed
        self._open_again_seconds = time.monotonic() + LOST_SECONDS if errors else math.inf
        return gpus

    @contextmanager
    def request_errors(self) -> Iterator[None]:
        """Convert NVML's errors to `RequestError` within a block."""
        try:
            yield
        except NvmlError as error:
            raise self.request_error(error) from error

    def request_error(self, error: NvmlError) -> RequestError:
        """Convert an error of NVML; after a driver restart, NVML is reopened.

        It is reopened at the next use that is `REOPEN_SECONDS` after the last opening.
        """
        if isinstance(error, (LibraryMissing, GpuLost)) or error.code in {_UNINITIALIZED, _UNKNOWN}:
            # Its handles may be invalid. It is closed later, since those of other GPUs may still work.
            self._open_again_seconds = min(self._open_again_seconds, self._opened_seconds + REOPEN_SECONDS)
        reason = next((reason for kind, reason in _REASONS if isinstance(error, kind)), Reason.DEVICE_FAILED)
        return RequestError(reason, str(error))

    def close(self) -> None:
        """Close NVML; the next use reopens it."""
        session, self._session, self._gpus = self._session, None, {}
        self._open_again_seconds = math.inf
        if session is not None:
            try:
                session.close()
            except NvmlError:
                # The driver restart that caused the close has closed it already.
                return
