"""The node as a whole: started in order, and kept running."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from support.control_plane.commands import ClusterCommand
from support.control_plane.control_plane import ControlPlane, NodeNetwork
from support.control_plane.processes import ServerProcess
from support.device_plugin import device_plugin_command
from support.kubernetes_node import containerd, network
from support.kubernetes_node.folders import NodeFolders
from support.kubernetes_node.kube_proxy import kube_proxy_command
from support.kubernetes_node.kubelet import kubelet_command
from support.kubernetes_node.name_server import name_server_command
from support.kubernetes_node.pause_image import NAME as PAUSE_IMAGE
from support.kubernetes_node.pause_image import write_pause_image
from support.kubernetes_node.simulated_gpus import make_gpus, runtime_class, write_gpu_runtime
from support.kubernetes_node.storage import storage_objects

NODE = "node-0"
_READY_WITHIN_SECONDS = 240.0
_KUBELET_PORT = 10250
_CONTAINERD, _KUBELET, _KUBE_PROXY, _NAME_SERVER = "containerd", "kubelet", "kube-proxy", "coredns"
_DEVICE_PLUGIN = "device-plugin"


@dataclass(frozen=True)
class About:
    """The description of a node for its users.

    Attributes:
        folder: Its folder; `NodeFolders` describes the contents.
        programs: The paths of kubectl, helm and the other programs.
        processes: The process id of each part, as of now.
        gpus_state: The state file of its simulated GPUs.
        supervisor: The process that holds it together.
    """

    folder: str
    kubeconfig: str
    programs: dict[str, str]
    processes: dict[str, int]
    gpus_state: str
    supervisor: int

    @staticmethod
    def read(folder: Path) -> About:
        """The supervisor's latest description."""
        return About(**json.loads(NodeFolders(folder).about.read_text(encoding="utf-8")))


class Node:
    """A node and its control plane. `clean_up` ends it: nothing of it is worth an orderly end.

    Args:
        programs: The path of each program, by its name.
        gpus: How many simulated GPUs it has.
    """

    def __init__(self, programs: Mapping[str, Path], folder: Path, *, gpus: int) -> None:
        self.folders = NodeFolders(folder)
        self._programs = programs
        self._gpu_count = gpus
        self._gpus_state = Path()
        self._plane: ControlPlane | None = None
        self._servers: list[ServerProcess] = []

    def start(self) -> None:
        """Starts the parts; returns when the node is ready for pods."""
        self.folders.make()
        network.make_bridge()
        self._gpus_state = make_gpus(self.folders, self._gpu_count)
        self._start_containerd()
        plane_folder = self.folders.folder / "control-plane"
        plane_folder.mkdir()
        nodes = NodeNetwork(network.ADDRESS, network.SERVICE_ADDRESSES)
        self._plane = ControlPlane(self._programs, plane_folder, nodes)
        self._plane.start()
        self._plane.start_scheduler()
        kubectl = self._kubectl(self._plane)
        kubectl.apply(*storage_objects(self.folders), runtime_class())
        _await(lambda: containerd.answers(self.folders), "containerd", self._servers)
        write_pause_image(self.folders.folder / "pause.tar")
        containerd.import_images(self.folders, [self.folders.folder / "pause.tar"])
        self._start_agents(self._plane)
        self._tell()
        _await(lambda: _is_ready(kubectl), f"the node {NODE}", self._servers)

    def look_after(self) -> None:
        """Starts again what has ended, as the service manager of a real node does; called again and again."""
        before = self._processes()
        for index, server in enumerate(self._servers):
            if server.ended:
                self._servers[index] = ServerProcess(server.name, server.command, self.folders.logs)
        if self._plane is not None:
            self._plane.start_again_what_ended()
        if self._processes() != before:
            self._tell()

    def _start_containerd(self) -> None:
        cni_folder = network.write_cni_configuration(self.folders.folder, self.folders.folder / "addresses")
        configuration = containerd.write_configuration(
            self.folders,
            pause_image=PAUSE_IMAGE,
            cni_folder=cni_folder,
            gpu_runtime=write_gpu_runtime(self.folders, self._gpus_state),
        )
        self._serve(_CONTAINERD, [_program("containerd"), f"--config={configuration}"])

    def _start_agents(self, plane: ControlPlane) -> None:
        programs, folders = self._programs, self.folders
        self._serve(_KUBELET, kubelet_command(programs[_KUBELET], folders, plane, node=NODE, port=_KUBELET_PORT))
        self._serve(_KUBE_PROXY, kube_proxy_command(programs[_KUBE_PROXY], folders, plane, node=NODE))
        self._serve(_DEVICE_PLUGIN, device_plugin_command(self._gpus_state))
        self._serve(_NAME_SERVER, name_server_command(programs[_NAME_SERVER], folders, plane))

    def _serve(self, name: str, command: Sequence[str | Path]) -> None:
        self._servers.append(ServerProcess(name, command, self.folders.logs))

    def _kubectl(self, plane: ControlPlane) -> ClusterCommand:
        return ClusterCommand(self._programs["kubectl"], plane.admin_kubeconfig, self.folders.folder / "home")

    def _processes(self) -> dict[str, int]:
        plane = self._plane.process_ids if self._plane else {}
        return plane | {server.name: server.pid for server in self._servers}

    def _tell(self) -> None:
        about = About(
            folder=str(self.folders.folder),
            kubeconfig=str(self._plane.admin_kubeconfig),
            programs={name: str(path) for name, path in self._programs.items()},
            processes=self._processes(),
            gpus_state=str(self._gpus_state),
            supervisor=os.getpid(),
        )
        unfinished = self.folders.about.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(asdict(about), indent=2), encoding="utf-8")
        unfinished.replace(self.folders.about)


def _is_ready(kubectl: ClusterCommand) -> bool:
    conditions = [
        condition
        for node in kubectl.json("get", "nodes")["items"]
        for condition in node["status"].get("conditions", [])
    ]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _await(true: Callable[[], bool], what: str, servers: list[ServerProcess]) -> None:
    deadline = time.monotonic() + _READY_WITHIN_SECONDS
    while not true():
        for server in servers:
            server.check_alive()
        if time.monotonic() > deadline:
            tails = "\n".join(f"the end of {server.log}:\n{server.log_tail()}" for server in servers)
            raise TimeoutError(f"{what} is not ready after {_READY_WITHIN_SECONDS:.0f} s\n{tails}")
        time.sleep(0.2)


def _program(name: str) -> str:
    path = shutil.which(name)
    assert path is not None, f"needs.what_is_missing() names {name} where it is not there"
    return path
