"""Which of the GPUs that an agent offers, or that CUDA shows, belong to this process.

Two ranks of one pod never count the same GPU twice, and a run on a shared machine leaves the GPUs of others alone.
"""

import logging
from collections.abc import Mapping, Sequence

from wattloop.errors import UsageError
from wattloop.gpus.agent import GpuDescription
from wattloop.wire.launcher import process_rank

CUDA_VARIABLE = "CUDA_VISIBLE_DEVICES"
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


logger = logging.getLogger("wattloop")

# UUIDs of the GPUs that a local run was given. Precedes CUDA's variable, whose numbers are not those of
# simulated GPUs.
GPUS_VARIABLE = "WATTLOOP_GPUS"


def gpus_of_process(
    offered: Sequence[GpuDescription],
    variables: Mapping[str, str],
    chosen: Sequence[int | str] | None = None,
) -> tuple[GpuDescription, ...]:
    """The GPUs of a process.

    They are, of those offered: the chosen ones, or else those that `given_to_process` gives. If several
    processes share a node, each of them then has the GPU of its local rank, as `cuda:LOCAL_RANK`; a local
    rank beyond the last GPU has none, because another process measures the GPU that it shares.

    Args:
        offered: The GPUs that the agent offers to the process.
        variables: The environment variables of the process.
        chosen: Indices into `offered` in the order of their own indices, or UUIDs; None: by the
            environment.

    Raises:
        UsageError: A chosen GPU is not offered.
    """
    ordered = sorted(offered, key=lambda gpu: gpu.index)
    if chosen is not None:
        return tuple(dict.fromkeys(_chosen(ordered, each) for each in chosen))
    visible = given_to_process(offered, variables)
    place = process_rank(variables)
    if place.local_rank is None or place.local_ranks == 1:
        return visible
    names_one_device = not variables.get(GPUS_VARIABLE) and "," not in variables.get(CUDA_VARIABLE, ",")
    if len(visible) == 1 and names_one_device:
        # The launcher gave this process a GPU of its own.
        return visible
    if place.local_rank >= len(visible):
        logger.warning(
            "local rank %d measures no GPU: the processes of this node share %d",
            place.local_rank,
            len(visible),
        )
        return ()
    return (visible[place.local_rank],)


def given_to_process(offered: Sequence[GpuDescription], variables: Mapping[str, str]) -> tuple[GpuDescription, ...]:
    """The offered GPUs that `WATTLOOP_GPUS` or else `CUDA_VISIBLE_DEVICES` names; all without either.

    An index of CUDA's variable counts the GPUs that are offered to the process. A MIG device stands for
    its GPU, which is where energy is counted.
    """
    by_uuid = {gpu.uuid: gpu for gpu in sorted(offered, key=lambda gpu: gpu.index)}
    text = variables.get(GPUS_VARIABLE) or variables.get(CUDA_VARIABLE)
    return tuple(by_uuid[uuid] for uuid in visible_gpus(text, list(by_uuid), _gpu_by_mig_device(text, list(by_uuid))))


def _gpu_by_mig_device(text: str | None, uuids: Sequence[str]) -> dict[str, str]:
    """The GPU of each MIG device that the text names, as far as it is clear.

    MIG-GPU-<uuid>/<GPU instance>/<compute instance> of older drivers names the GPU. A newer name does not,
    and is clear only if there is one GPU.
    """
    found = {}
    for entry in (text or "").split(","):
        name = entry.strip()
        parent = name.removeprefix("MIG-").split("/")[0]
        if name.startswith("MIG-") and (parent in uuids or len(uuids) == 1):
            found[name] = parent if parent in uuids else uuids[0]
    return found


def _chosen(ordered: Sequence[GpuDescription], name: int | str) -> GpuDescription:
    found = visible_gpus(str(name), [gpu.uuid for gpu in ordered])
    gpu = next((each for each in ordered if each.uuid in found), None)
    if gpu is None:
        known = ", ".join(f"{place} ({each.uuid})" for place, each in enumerate(ordered)) or "none"
        raise UsageError(f"GPU {name!r} is not offered to this process; the GPUs are: {known}")
    return gpu
