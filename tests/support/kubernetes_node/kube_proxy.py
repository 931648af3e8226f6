"""kube-proxy: what makes a Service's address lead to its pods."""

from pathlib import Path

import yaml

from support.control_plane.control_plane import ControlPlane
from support.kubernetes_node.folders import NodeFolders
from support.kubernetes_node.network import ADDRESS, POD_ADDRESSES


def kube_proxy_command(program: Path, folders: NodeFolders, plane: ControlPlane, *, node: str) -> list[str | Path]:
    """Writes its configuration and returns its command."""
    kubeconfig = plane.kubeconfig_by_certificate("system:kube-proxy", [])
    configuration = folders.folder / "kube-proxy.yaml"
    content = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "mode": "iptables",
        "clusterCIDR": POD_ADDRESSES,
        "hostnameOverride": node,
        "bindAddress": ADDRESS,
        "nodePortAddresses": ["127.0.0.0/8"],
        "healthzBindAddress": "",
        "metricsBindAddress": "",
        "iptables": {"minSyncPeriod": "0s"},
        # The machine's own limits are left as they are.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
    configuration.write_text(yaml.safe_dump(content), encoding="utf-8")
    return [program, f"--config={configuration}"]
