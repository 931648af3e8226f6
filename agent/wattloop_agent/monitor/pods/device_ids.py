"""Parses device plugin ids: which GPU an id names, and whether it is shared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_UUID = r"GPU-[0-9a-fA-F-]{36}"
_FULL_GPU = re.compile(_UUID)
_REPLICA = re.compile(rf"({_UUID})::\d+")
_MIG = re.compile(r"(MIG-[0-9a-fA-F-]{36})(?:::\d+)?")
# Before driver 470 a MIG device was named after its GPU, its GPU instance and its compute instance.
_OLD_MIG = re.compile(rf"MIG-({_UUID})/\d+/\d+(?:::\d+)?")
_NODE = re.compile(r"nvidia\d+")
_NODE_PART = re.compile(r"(nvidia\d+)/(?:gi|vgpu)\d+(?:/.*)?")


@dataclass(frozen=True)
class PodGpus:
    """The GPUs of one pod.

    Attributes:
        exclusive: Uuids of those that only it uses.
        shared: Uuids of those that others use too, by time slicing or MIG: it may not set their
            limit.
        unknown: Ids that name no device of this machine, or have an unknown form.
    """

    exclusive: frozenset[str]
    shared: frozenset[str]
    unknown: frozenset[str]


def needs_names(ids: Iterable[str]) -> bool:
    """Whether one of these ids names no GPU uuid, so that `gpus_of` needs `uuid_by_device`."""
    return not all(_FULL_GPU.fullmatch(device) or _REPLICA.fullmatch(device) for device in ids)


def gpus_of(ids: Iterable[str], uuid_by_device: Mapping[str, str]) -> PodGpus:
    """The GPUs that a pod's device ids name.

    Args:
        ids: As the kubelet lists them: ``GPU-…``, ``GPU-…::replica``, ``MIG-…``,
            ``MIG-…::replica``, ``nvidia0``, ``nvidia0/gi1``.
        uuid_by_device: Each GPU's uuid, by the name of its device node (``nvidia0``) and by the
            uuids of its MIG devices.

    Example:
        >>> uuid = "GPU-00000000-0000-0000-0000-000000000001"
        >>> sorted(gpus_of([uuid + "::3"], {}).shared) == [uuid]
        True
    """
    exclusive, shared, unknown = set(), set(), set()
    for device in ids:
        if _FULL_GPU.fullmatch(device):
            exclusive.add(device)
        elif _NODE.fullmatch(device) and device in uuid_by_device:
            exclusive.add(uuid_by_device[device])
        elif part := _REPLICA.fullmatch(device) or _OLD_MIG.fullmatch(device):
            shared.add(part.group(1))
        elif (part := _MIG.fullmatch(device) or _NODE_PART.fullmatch(device)) and part.group(1) in uuid_by_device:
            shared.add(uuid_by_device[part.group(1)])
        else:
            unknown.add(device)
    return PodGpus(frozenset(exclusive - shared), frozenset(shared), frozenset(unknown))
