"""A root file system as a docker archive of one layer, which every image builder and every runtime takes."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Sequence
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
SEARCHED = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def write_archive(root: Path, archive: Path, name: str, command: Sequence[str] = ()) -> None:
    """Wraps a tar file of a root file system as an image.

    Args:
        root: The tar file, uncompressed: it is the layer as it is.
        name: With its tag, as in ``docker.io/wattloop-tests/base:1``.
        command: The default command of its containers.
    """
    with root.open("rb") as file:
        layer = hashlib.file_digest(file, "sha256").hexdigest()
    configuration = json.dumps(
        {
            "architecture": ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {"Env": [SEARCHED], "Cmd": list(command)},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
            # A layer without its history is one too many for builders.
            "history": [{"created_by": name}],
        },
        sort_keys=True,
    ).encode()
    configured = f"{hashlib.sha256(configuration).hexdigest()}.json"
    manifest = [{"Config": configured, "RepoTags": [name], "Layers": [f"{layer}/layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        tar.add(root, f"{layer}/layer.tar", recursive=False)
        for member, content in ((configured, configuration), ("manifest.json", json.dumps(manifest).encode())):
            information = tarfile.TarInfo(member)
            information.size = len(content)
            tar.addfile(information, io.BytesIO(content))
