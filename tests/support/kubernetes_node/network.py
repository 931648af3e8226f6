"""The node's network: a bridge that pods hang on, and settings of the kernel that are put back afterwards."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

BRIDGE = "wattloop-test0"
ADDRESS = "198.18.77.1"
"""The machine's own address on the bridge: where the API server, the kubelet and the name server are for pods."""
POD_ADDRESSES = "198.18.77.0/24"
SERVICE_ADDRESSES = "198.19.0.0/16"
NETWORK_NAME = "wattloop-tests"
CNI_STATE = Path("/var/lib/cni")

# Kubelet and kube-proxy change most of these themselves and never put them back.
_CHANGED_SETTINGS = (
    "kernel.keys.root_maxbytes",
    "kernel.keys.root_maxkeys",
    "kernel.panic",
    "kernel.panic_on_oops",
    "net.bridge.bridge-nf-call-ip6tables",
    "net.bridge.bridge-nf-call-iptables",
    "net.ipv4.conf.all.route_localnet",
    "net.ipv4.ip_forward",
    "net.ipv6.conf.all.forwarding",
    "net.netfilter.nf_conntrack_max",
    "net.netfilter.nf_conntrack_tcp_be_liberal",
    "net.netfilter.nf_conntrack_tcp_timeout_close_wait",
    "net.netfilter.nf_conntrack_tcp_timeout_established",
    "vm.overcommit_memory",
    "vm.panic_on_oom",
)
# A pod's packets to a Service of another pod must pass the address translation though both hang on one bridge.
_NEEDED_SETTINGS = {"net.ipv4.ip_forward": "1", "net.bridge.bridge-nf-call-iptables": "1"}


def kernel_settings() -> dict[str, str]:
    """The settings that a node changes, as they are now."""
    found = {name: _setting(name) for name in _CHANGED_SETTINGS}
    return {name: path.read_text(encoding="ascii").strip() for name, path in found.items() if path.exists()}


def restore_kernel_settings(settings: Mapping[str, str]) -> None:
    """Puts back what `kernel_settings` found."""
    for name, value in settings.items():
        if _setting(name).read_text(encoding="ascii").strip() != value:
            _setting(name).write_text(value, encoding="ascii")


def make_bridge() -> None:
    """Makes the bridge, which the CNI plugin would only make with the first pod: servers listen on its address."""
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("address", "add", f"{ADDRESS}/24", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")
    for name, value in _NEEDED_SETTINGS.items():
        if _setting(name).exists():
            _setting(name).write_text(value, encoding="ascii")


def write_cni_configuration(folder: Path, state: Path) -> Path:
    """Writes the configuration by which containerd connects pods; returns its folder.

    Args:
        folder: The parent of the configuration's folder.
    """
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(state),
            "ranges": [[{"subnet": POD_ADDRESSES, "gateway": ADDRESS}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    configurations = folder / "cni"
    configurations.mkdir()
    content = {"cniVersion": "0.4.0", "name": NETWORK_NAME, "plugins": [bridge]}
    (configurations / "10-bridge.conflist").write_text(json.dumps(content), encoding="ascii")
    return configurations


def remove_network() -> None:
    """Removes the bridge and what hangs on it, and what CNI remembers of it."""
    links = json.loads(_ip("-json", "link", "show", "type", "veth") or "[]")
    for link in links:
        if link.get("master") == BRIDGE:
            try:
                _ip("link", "delete", link["ifname"])
            except subprocess.CalledProcessError:
                # It goes by itself with the network namespace of a pod that has ended.
                if (Path("/sys/class/net") / link["ifname"]).exists():
                    raise
    if (Path("/sys/class/net") / BRIDGE).exists():
        _ip("link", "delete", BRIDGE)
    for remembered in CNI_STATE.glob(f"*/{NETWORK_NAME}-*"):
        remembered.unlink(missing_ok=True)


def _setting(name: str) -> Path:
    return Path("/proc/sys") / name.replace(".", "/")


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout
