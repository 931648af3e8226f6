"""A control plane of its own for a test, with nothing of Wattloop in it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kubernetes import client, config
from kubernetes.dynamic import DynamicClient

from support.control_plane.commands import ClusterCommand
from support.control_plane.control_plane import running_control_plane
from support.control_plane.kubelet import register_node

HOME = "wattloop-system"


@dataclass(frozen=True)
class EmptyCluster:
    """A cluster that has nothing of Wattloop, not even the definitions."""

    helm: ClusterCommand
    kubectl: ClusterCommand
    client: DynamicClient


@contextmanager
def running_empty_cluster(programs: Mapping[str, Path], folder: Path) -> Iterator[EmptyCluster]:
    """Runs one with the namespace `HOME`, which admits only restricted pods, and a node with a GPU."""
    home = folder / "home"
    with running_control_plane(programs, folder) as plane:
        kubectl = ClusterCommand(programs["kubectl"], plane.admin_kubeconfig, home)
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        kubectl.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME, "labels": labels}},
            {
                "apiVersion": "node.k8s.io/v1",
                "kind": "RuntimeClass",
                "metadata": {"name": "nvidia"},
                "handler": "nvidia",
            },
        )
        with config.new_client_from_config(str(plane.admin_kubeconfig)) as api_client:
            register_node(client.CoreV1Api(api_client), "gpu-node", {"nvidia.com/gpu.present": "true"})
            yield EmptyCluster(
                ClusterCommand(programs["helm"], plane.admin_kubeconfig, home),
                kubectl,
                DynamicClient(api_client, cache_file=str(folder / "discovery.json")),
            )
