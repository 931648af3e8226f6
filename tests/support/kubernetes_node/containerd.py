"""containerd with a root, a state and a socket of its own, so that one of the machine's own is not touched."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.kubernetes_node.folders import NodeFolders
from support.kubernetes_node.requirements import CNI_PROGRAMS

NAMESPACE = "k8s.io"
"""The folder of the kubelet's images and containers."""
GPU_RUNTIME = "nvidia"
_IMPORT_TIMEOUT_SECONDS = 400.0


def write_configuration(folders: NodeFolders, *, pause_image: str, cni_folder: Path, gpu_runtime: Path) -> Path:
    """Writes config.toml.

    Args:
        pause_image: The image that holds a pod's namespaces.
        cni_folder: The folder of the network's configuration.
        gpu_runtime: The replacement of runc for pods of the runtime class `nvidia`.
    """
    path = folders.folder / "containerd.toml"
    path.write_text(
        f"""
version = 2
root = "{folders.containerd_root}"
state = "{folders.containerd_state}"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = "{folders.containerd_address}"
[ttrpc]
  address = "{folders.containerd_address}.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folders.containerd_root}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause_image}"
  # Lowering it takes CAP_SYS_RESOURCE, which a machine within a machine may not have.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PROGRAMS}"
    conf_dir = "{cni_folder}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{GPU_RUNTIME}]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{GPU_RUNTIME}.options]
      BinaryName = "{gpu_runtime}"
""",
        encoding="utf-8",
    )
    return path


def control(folders: NodeFolders, *arguments: str) -> str:
    """Runs `ctr` on the node's containerd and returns its output."""
    command = ["ctr", f"--address={folders.containerd_address}", f"--namespace={NAMESPACE}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_IMPORT_TIMEOUT_SECONDS).stdout


def answers(folders: NodeFolders) -> bool:
    """Whether containerd serves."""
    command = ["ctr", f"--address={folders.containerd_address}", "--connect-timeout=1s", "version"]
    return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode == 0


def import_images(folders: NodeFolders, archives: Sequence[Path]) -> None:
    """Makes the images of docker archives known under the names that are in them."""
    for archive in archives:
        control(folders, "images", "import", str(archive))
