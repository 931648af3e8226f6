"""The kubelet: its configuration and its command."""

from pathlib import Path

import yaml

from support.control_plane.control_plane import ControlPlane
from support.kubernetes_node.folders import NodeFolders
from support.kubernetes_node.network import ADDRESS

CLUSTER_DOMAIN = "cluster.local"


def kubelet_command(
    program: Path, folders: NodeFolders, plane: ControlPlane, *, node: str, port: int
) -> list[str | Path]:
    """Writes the kubelet's configuration and returns its command.

    Args:
        plane: The control plane that it joins.
        port: The port of logs and exec.
    """
    configuration = folders.folder / "kubelet.yaml"
    configuration.write_text(yaml.safe_dump(_configuration(folders, plane, port)), encoding="utf-8")
    return [
        program,
        f"--config={configuration}",
        f"--kubeconfig={plane.kubeconfig_by_certificate(f'system:node:{node}', ['system:nodes'])}",
        f"--root-dir={folders.kubelet_root}",
        f"--hostname-override={node}",
        f"--node-ip={ADDRESS}",
        # The label of GPU feature discovery.
        "--node-labels=nvidia.com/gpu.present=true",
    ]


def _configuration(folders: NodeFolders, plane: ControlPlane, port: int) -> dict[str, object]:
    resolver = folders.folder / "resolv.conf"
    resolver.write_text(f"nameserver {ADDRESS}\n", encoding="ascii")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(plane.folder / "authority.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "address": ADDRESS,
        "port": port,
        "healthzPort": 0,
        "containerRuntimeEndpoint": f"unix://{folders.containerd_address}",
        "podLogsDir": str(folders.pod_logs),
        "volumePluginDir": str(folders.folder / "volume-plugins"),
        "clusterDNS": [ADDRESS],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": str(resolver),
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        # The disk is the developer's: a full one must not have the kubelet evict the tests.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "24h",
        "serializeImagePulls": False,
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 15,
        "syncFrequency": "10s",
        # Tests kill containers again and again, and wait for them.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
    }
