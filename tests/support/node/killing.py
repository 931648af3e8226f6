"""Kills one part of the node, of Wattloop or of a training, as SIGKILL or a forced deletion does it: without a word."""

import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from support.control_plane.commands import ClusterCommand, CommandError
from support.control_plane.waiting import Object
from support.kubernetes_node.clean_up import PODS_CGROUP
from support.kubernetes_node.installation import AGENTS, OPERATORS
from support.kubernetes_node.node import About
from support.kubernetes_node.requirements import cgroup_roots

TRAININGS = "wattloop.dev/recurrence"

# Folders of the pods' cgroups: guaranteed ones are in the first.
QUALITIES_OF_SERVICE = ("", "burstable", "besteffort")


class Killer:
    """Finds and kills parts of the node.

    Args:
        namespace: The namespace of the training pods.
        seed: The seed of the choice among several training pods.

    Attributes:
        kinds: The kinds of parts. Each function returns False if there was nothing to kill.
    """

    def __init__(self, folder: Path, kubectl: ClusterCommand, namespace: str, seed: int) -> None:
        self._folder = folder
        self._kubectl = kubectl
        self._namespace = namespace
        self._random = random.Random(seed)
        self.kinds: dict[str, Callable[[], bool]] = {
            "operator pod": lambda: self._delete_pod(OPERATORS, "app.kubernetes.io/component=operator"),
            "agent pod": lambda: self._delete_pod(AGENTS, "app.kubernetes.io/component=agent"),
            "power controller process": self._kill_power_controller,
            "training pod": lambda: self._delete_pod(namespace, TRAININGS),
            "kubelet": lambda: self._kill_server("kubelet"),
            "API server": lambda: self._kill_server("kube-apiserver"),
            "shim of a training": self._kill_shim,
        }

    def rounds(self, kills: int) -> list[str]:
        """By turns, each round in an order of its own."""
        order: list[str] = []
        while len(order) < kills:
            order += self._random.sample(sorted(self.kinds), len(self.kinds))
        return order[:kills]

    def pause_seconds(self, minimum: float, maximum: float) -> float:
        """A drawn time between two kills."""
        return self._random.uniform(minimum, maximum)

    def _delete_pod(self, namespace: str, selector: str) -> bool:
        pods = self._running_pods(namespace, selector)
        if not pods:
            return False
        name = self._random.choice(pods)["metadata"]["name"]
        options = ["--grace-period=0", "--force", "--wait=false", "--ignore-not-found"]
        try:
            self._kubectl("delete", "pod", name, *options, namespace=namespace)
        except CommandError:
            # The API server was the last one killed, and is not yet quite there again.
            return False
        return True

    def _kill_power_controller(self) -> bool:
        for pod in self._running_pods(AGENTS, "app.kubernetes.io/component=agent"):
            for status in pod["status"].get("containerStatuses", []):
                if status["name"] == "power-controller" and "running" in status["state"]:
                    return _kill_all(processes_of_container(pod["metadata"]["uid"], status["containerID"]))
        return False

    def _kill_shim(self) -> bool:
        """Each shim is of one pod; which one its arguments do not say, but its children do."""
        pods = self._running_pods(self._namespace, TRAININGS)
        if not pods:
            return False
        pod = self._random.choice(pods)
        statuses = pod["status"].get("containerStatuses", [])
        processes = [
            process
            for status in statuses
            if "containerID" in status
            for process in processes_of_container(pod["metadata"]["uid"], status["containerID"])
        ]
        return _kill_all(filter(_is_shim, map(_parent, processes)))

    def _kill_server(self, name: str) -> bool:
        return _kill_all([About.read(self._folder).processes[name]])

    def _running_pods(self, namespace: str, selector: str) -> list[Object]:
        try:
            pods = self._kubectl.json("get", "pods", f"--selector={selector}", namespace=namespace)["items"]
        except CommandError:
            # The API server was the last one killed.
            return []
        return [
            pod for pod in pods if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]


def processes_of_container(pod_uid: str, container_id: str) -> list[int]:
    """The processes of a container, by its cgroup."""
    found: set[int] = set()
    for root in cgroup_roots():
        # No search through the folders, because those of other pods may vanish in its midst.
        for service_class in QUALITIES_OF_SERVICE:
            pod = root / PODS_CGROUP / service_class / f"pod{pod_uid}"
            # The container may end meanwhile, and its cgroup with it.
            with contextlib.suppress(OSError):
                text = (pod / container_id.rpartition("/")[2] / "cgroup.procs").read_text(encoding="ascii")
                found.update(int(line) for line in text.split())
    return sorted(found)


def _kill_all(processes: Iterator[int] | list[int]) -> bool:
    killed = False
    for process in set(processes):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
            killed = True
    return killed


def _parent(process: int) -> int:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("PPid:"):
                return int(line.split()[1])
    return 0


def _is_shim(process: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return b"containerd-shim" in Path(f"/proc/{process}/cmdline").read_bytes()
    return False
