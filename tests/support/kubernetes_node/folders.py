"""The node's folders: one temporary folder, except for the kubelet's fixed paths."""

from dataclasses import dataclass
from pathlib import Path

DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
"""Fixed by the kubelet for any root."""


@dataclass(frozen=True)
class NodeFolders:
    """The parts of a node's folder."""

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
        """State that containerd loses at a reboot; the mounts of containers' root file systems."""
        return self.folder / "run"

    @property
    def kubelet_root(self) -> Path:
        """Pods' volumes are mounted here."""
        return self.folder / "kubelet"

    @property
    def pod_logs(self) -> Path:
        """Logs of the containers, a folder a pod."""
        return self.folder / "pod-logs"

    @property
    def host(self) -> Path:
        """For folders of the node that pods mount: sockets, state, database."""
        return self.folder / "host"

    @property
    def agent_socket(self) -> Path:
        """For the agent's socket, which training pods mount."""
        return self.host / "socket"

    @property
    def agent_state(self) -> Path:
        """For the leases and the energy ledger of the agent."""
        return self.host / "state"

    @property
    def chart(self) -> Path:
        """The chart with this node's folders in place of a usual node's."""
        return self.folder / "chart"

    @property
    def logs(self) -> Path:
        """Logs of the node's own processes."""
        return self.folder / "logs"

    @property
    def about(self) -> Path:
        """The supervisor's description of the node for its users, JSON."""
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
