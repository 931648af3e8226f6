"""What a device plugin's id says of a GPU: whose it is, and whether others have it too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_WHOLE = re.compile(r"GPU-[0-9a-fA-F-]{36}")
_REPLICA = re.compile(r"(GPU-[0-9a-fA-F-]{36})::\d+")
_MIG = re.compile(r"MIG-.+")
_NODE = re.compile(r"nvidia(\d+)")
_NODE_PART = re.compile(r"nvidia(\d+)/(?:gi|vgpu)\d+(?:/.*)?")


@dataclass(frozen=True)
class PodGpus:
    """The GPUs of one pod.

    Attributes:
        whole: Uuids of those that it has to itself.
        shared: Uuids of those that others have too, by time slicing or MIG: its limit is not one owner's to set.
        unknown: Ids that name a part of a GPU which can't be said from here (``MIG-…``), or no form that we know.
    """

    whole: frozenset[str]
    shared: frozenset[str]
    unknown: frozenset[str]


def gpus_of(ids: Iterable[str], uuid_of_node: Mapping[int, str]) -> PodGpus:
    """The GPUs that a pod's device ids name.

    Args:
        ids: As the kubelet lists them: ``GPU-…``, ``GPU-…::replica``, ``MIG-…``, ``nvidia0``, ``nvidia0/gi1``.
        uuid_of_node: By the number of its device node, a GPU's uuid.

    Example:
        >>> uuid = "GPU-00000000-0000-0000-0000-000000000001"
        >>> sorted(gpus_of([uuid + "::3"], {}).shared) == [uuid]
        True
    """
    whole, shared, unknown = set(), set(), set()
    for device in ids:
        if _WHOLE.fullmatch(device):
            whole.add(device)
        elif replica := _REPLICA.fullmatch(device):
            shared.add(replica.group(1))
        elif (part := _NODE_PART.fullmatch(device)) and int(part.group(1)) in uuid_of_node:
            shared.add(uuid_of_node[int(part.group(1))])
        elif (node := _NODE.fullmatch(device)) and int(node.group(1)) in uuid_of_node:
            whole.add(uuid_of_node[int(node.group(1))])
        else:
            unknown.add(device)
    return PodGpus(frozenset(whole - shared), frozenset(shared), frozenset(unknown))
