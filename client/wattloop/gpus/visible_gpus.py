"""The GPUs that CUDA shows to a process, from ``CUDA_VISIBLE_DEVICES``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

VARIABLE = "CUDA_VISIBLE_DEVICES"
# CUDA accepts no longer list. A longer variable is cut, not read.
MAX_ENTRIES = 256
MAX_INDEX_CHARACTERS = 9


def visible_gpus(
    value: str | None, uuids: Sequence[str], gpu_by_mig_device: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The UUIDs of the GPUs that CUDA shows to a process, in the order of CUDA's indices.

    The rules are those of the CUDA C++ Programming Guide ("CUDA Environment Variables"): entries are
    indices or unambiguous prefixes of UUIDs, the list ends at its first invalid entry, and a list
    with a repeated GPU shows none. Indices count in the order of ``nvidia-smi``, which is CUDA's with
    ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` and on machines whose GPUs are all of one model.

    Args:
        value: Value of the variable; None if it is unset, which shows all GPUs.
        uuids: UUIDs of the GPUs that the machine or the container has, by index.
        gpu_by_mig_device: The GPU's UUID by the UUID of each of its MIG devices. CUDA shows one MIG
            device only; the result is the GPU that it is part of.

    Example:
        >>> visible_gpus("2,0", ["GPU-aa", "GPU-ab", "GPU-c"]), visible_gpus("GPU-ab", ["GPU-aa", "GPU-ab"])
        (('GPU-c', 'GPU-aa'), ('GPU-ab',))
        >>> visible_gpus("0,7,1", ["GPU-a", "GPU-b"]), visible_gpus("-1", ["GPU-a"]), visible_gpus(None, ["GPU-a"])
        (('GPU-a',), (), ('GPU-a',))
    """
    if value is None:
        return tuple(uuids)
    mig_devices = gpu_by_mig_device or {}
    shown: list[str] = []
    for entry in value.split(",", MAX_ENTRIES)[:MAX_ENTRIES]:
        name = entry.strip()
        if name.startswith("MIG-"):
            gpu = mig_devices.get(name)
            if gpu is not None and not shown:
                shown.append(gpu)
            break
        gpu = _gpu(name, uuids)
        if gpu is None:
            break
        shown.append(gpu)
    return tuple(shown) if len(set(shown)) == len(shown) else ()


def _gpu(name: str, uuids: Sequence[str]) -> str | None:
    if name.startswith("GPU-"):
        matching = [uuid for uuid in uuids if uuid.startswith(name)]
        return matching[0] if len(matching) == 1 else None
    if not (name.isascii() and name.isdecimal()) or len(name) > MAX_INDEX_CHARACTERS:
        return None
    index = int(name)
    return uuids[index] if index < len(uuids) else None
