"""CoreDNS as a process on the bridge's address: Services by their names, and nothing of the world outside."""

from pathlib import Path

from support.control_plane.control_plane import ControlPlane
from support.kubernetes_node.folders import NodeFolders
from support.kubernetes_node.kubelet import CLUSTER_DOMAIN
from support.kubernetes_node.network import ADDRESS


def name_server_command(program: Path, folders: NodeFolders, plane: ControlPlane) -> list[str | Path]:
    """Writes its configuration and returns its command."""
    kubeconfig = plane.kubeconfig_by_certificate("name-server", ["system:masters"])
    configuration = folders.folder / "Corefile"
    configuration.write_text(
        f"""
.:53 {{
    bind {ADDRESS}
    errors
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig} tests
        ttl 1
    }}
}}
""",
        encoding="utf-8",
    )
    return [program, "-conf", configuration]
