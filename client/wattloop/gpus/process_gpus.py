"""Which of the GPUs that an agent offers belong to this process.

An agent offers a pod's GPUs to each process of the pod, and all GPUs of the machine to a process outside
Kubernetes. A process measures and holds only those that it uses, so that two ranks of one pod never
count the same GPU twice, and a run on a shared machine leaves the GPUs of others alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from wattloop.errors import UsageError
from wattloop.gpus.agent import GpuDescription
from wattloop.gpus.visible_gpus import VARIABLE as CUDA_VARIABLE
from wattloop.gpus.visible_gpus import visible_gpus
from wattloop.wire.launcher import process_rank

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
    if len(visible) == 1 and _names_one_device(variables):
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


def _names_one_device(variables: Mapping[str, str]) -> bool:
    return not variables.get(GPUS_VARIABLE) and "," not in variables.get(CUDA_VARIABLE, ",")


def _chosen(ordered: Sequence[GpuDescription], name: int | str) -> GpuDescription:
    found = visible_gpus(str(name), [gpu.uuid for gpu in ordered])
    gpu = next((each for each in ordered if each.uuid in found), None)
    if gpu is None:
        known = ", ".join(f"{place} ({each.uuid})" for place, each in enumerate(ordered)) or "none"
        raise UsageError(f"GPU {name!r} is not offered to this process; the GPUs are: {known}")
    return gpu
