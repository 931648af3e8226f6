"""Waits for the work that a framework has queued on GPUs, so that a window contains it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from wattloop.errors import UsageError

Synchronize = Callable[[Sequence[int]], None]


def synchronization(framework: str | None) -> Synchronize | None:
    """The function that waits for a framework's work on GPUs, by CUDA's index; None for no framework.

    A framework that the process has not imported, or that has not used a GPU, has no work. Its module
    is never imported here.

    Raises:
        UsageError: The name is not one of ``torch``, ``jax``, ``cupy``.
    """
    if framework is None:
        return None
    if framework not in _FRAMEWORKS:
        raise UsageError(f"sync: found {framework!r}, expected None or one of {', '.join(map(repr, _FRAMEWORKS))}")
    function = _FRAMEWORKS[framework]

    def synchronize(gpus: Sequence[int]) -> None:
        module = sys.modules.get(framework)
        if module is not None:
            function(module, gpus)

    return synchronize


def _torch(torch: Any, gpus: Sequence[int]) -> None:
    # Without CUDA, or before its first use, synchronize would raise an error or create a context.
    if torch.cuda.is_initialized():
        for gpu in gpus:
            torch.cuda.synchronize(gpu)


def _jax(jax: Any, gpus: Sequence[int]) -> None:
    # JAX has no call that waits for a device. Work on one device is done in order, so new work is done last.
    devices = jax.local_devices()
    on_gpus = [device for device in devices if device.platform == "gpu"]
    chosen = [on_gpus[gpu] for gpu in gpus if gpu < len(on_gpus)] if on_gpus else devices
    jax.block_until_ready([jax.device_put(0.0, device) + 0 for device in chosen])


def _cupy(cupy: Any, gpus: Sequence[int]) -> None:
    if cupy.is_available():
        for gpu in gpus:
            cupy.cuda.Device(gpu).synchronize()


_FRAMEWORKS: dict[str, Callable[[Any, Sequence[int]], None]] = {"torch": _torch, "jax": _jax, "cupy": _cupy}
