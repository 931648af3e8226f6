"""The graphics clocks that may be held on all GPUs of a process, from the agent's descriptions."""

from __future__ import annotations

from collections.abc import Sequence

from wattloop.gpus.agent import GpuDescription
from wattloop.pipeline.directives import AllowedClocks


def allowed_clocks(gpus: Sequence[GpuDescription]) -> AllowedClocks:
    """The clocks that every GPU supports and that the caller may request on every one.

    Example:
        >>> from wattloop.gpus.agent import GraphicsClocks
        >>> gpus = [
        ...     GpuDescription("GPU-1", "NVIDIA A40", 0, None, GraphicsClocks((900, 915, 930), (900, 930))),
        ...     GpuDescription("GPU-2", "NVIDIA A40", 1, None, GraphicsClocks((900, 915, 930), (915, 930))),
        ... ]
        >>> allowed_clocks(gpus)
        AllowedClocks(gpu_product='NVIDIA A40', supported_megahertz=(900, 915, 930), allowed_megahertz=(915, 930))
    """
    products = sorted({gpu.name for gpu in gpus})
    described = [gpu.clocks for gpu in gpus if gpu.clocks is not None]
    if not described or len(described) < len(gpus):
        return AllowedClocks(", ".join(products))
    supported = set(described[0].supported_megahertz).intersection(*(each.supported_megahertz for each in described))
    allowed = supported
    for each in described:
        low, high = each.allowed_megahertz or (1.0, 0.0)
        allowed = {clock for clock in allowed if low <= clock <= high}
    return AllowedClocks(", ".join(products), tuple(sorted(supported)), tuple(sorted(allowed)))
