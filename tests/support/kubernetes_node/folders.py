"""Where a node keeps things: all in one temporary folder, but for what the kubelet has fixed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
"""The kubelet's own choice, whatever its root is."""


@dataclass(frozen=True)
class NodeFolders:
    """The parts of a node's folder.

    Attributes:
        folder: The temporary folder.
    """

    folder: Path

    @property
    def containerd_address(self) -> Path:
        """containerd's socket."""
        return self.folder / "containerd.sock"

    @property
    def containerd_root(self) -> Path:
        """Images and snapshots."""
        return self.folder / "containerd"

    @property
    def containerd_state(self) -> Path:
        """What containerd forgets at a reboot; containers' root file systems are mounted here."""
        return self.folder / "run"

    @property
    def kubelet_root(self) -> Path:
        """Pods' volumes are mounted here."""
        return self.folder / "kubelet"

    @property
    def pod_resources_socket(self) -> Path:
        """Where the kubelet says which pod has which device."""
        return self.kubelet_root / "pod-resources" / "kubelet.sock"

    @property
    def pod_logs(self) -> Path:
        """Logs of the containers, a folder a pod."""
        return self.folder / "pod-logs"

    @property
    def host(self) -> Path:
        """For folders of the node that pods mount: sockets, state, database."""
        return self.folder / "host"

    @property
    def logs(self) -> Path:
        """Logs of the node's own processes."""
        return self.folder / "logs"

    @property
    def about(self) -> Path:
        """What the supervisor tells those who use the node, JSON."""
        return self.folder / "node.json"

    def make(self) -> None:
        """Makes the folders. They are open to all: containers' users look through them."""
        for each in (
            self.containerd_root,
            self.containerd_state,
            self.kubelet_root,
            self.pod_logs,
            self.logs,
            self.host,
        ):
            each.mkdir()
        for each in (self.folder, self.host):
            each.chmod(0o755)
