"""From a process's cgroup to its pod.

The kubelet names a pod's cgroup after its uid, under cgroup v1 and v2, with the cgroupfs and the
systemd driver, and the container runtimes name a container's below it:
``/kubepods/burstable/pod<uid>/<container>``,
``/kubepods.slice/kubepods-pod<uid>.slice/cri-containerd-<container>.scope``, ``crio-…``,
``docker-…``.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

# An API server's uid, or the hash that names a static pod; systemd can't have dashes inside, so
# they are underscores.
_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_POD = re.compile(rf"(?:.*-)?pod({_UID})(?:\.slice)?")
_CONTAINER = re.compile(r"(?:[a-z]+(?:-[a-z]+)*-)?([0-9a-f]{64})(?:\.scope)?")


@dataclass(frozen=True)
class PodCgroup:
    """The pod and the container of a process.

    Attributes:
        pod_uid: Of its pod, as the API server writes it.
        container_id: Of its container, as the runtime names it.
    """

    pod_uid: str
    container_id: str


class NotInPodError(ValueError):
    """The process is in no pod, or in two at once."""


def pod_of(cgroup: str) -> PodCgroup:
    """The pod that the content of ``/proc/<pid>/cgroup`` names.

    Only the outermost pod counts: a container may make cgroups below its own, with any name.

    Raises:
        NotInPodError: There is none, or the hierarchies of cgroup v1 do not agree.

    Example:
        >>> uid = "0a1b2c3d-0000-4000-8000-000000000001"
        >>> pod_of(f"0::/kubepods/besteffort/pod{uid}/{'c' * 64}").pod_uid
        '0a1b2c3d-0000-4000-8000-000000000001'
    """
    found = {pod for line in cgroup.splitlines() if (pod := _of_path(line.split(":", 2)[-1])) is not None}
    if not found:
        raise NotInPodError("its cgroup is no pod's")
    if len(found) > 1:
        raise NotInPodError("its cgroups are of different pods")
    return found.pop()


def _of_path(path: str) -> PodCgroup | None:
    parts = path.split("/")
    # systemd lets a user of the node make cgroups below its own slice, with any name.
    if "user.slice" in parts:
        return None
    for part, below in itertools.pairwise(parts):
        if pod := _POD.fullmatch(part):
            container = _CONTAINER.fullmatch(below)
            return container and PodCgroup(pod.group(1).replace("_", "-"), container.group(1))
    return None
