"""An image as a container would see it: its configuration, its files, and its programs."""

import json
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class OpenedImage:
    """A container made from an image.

    Attributes:
        configuration: In the image format: ``User``, ``Labels``, ``Env``, ``Entrypoint``, ``Cmd``, ….
        layer_bytes: Of each layer, uncompressed, the base's first.
    """

    configuration: dict[str, Any]
    layer_bytes: tuple[int, ...]
    root: Path

    def run(self, *command: str) -> str:
        """Runs a program in it as its user and returns the output.

        Raises:
            AssertionError: It failed; the text is the program's output.
        """
        environment = self.configuration["Env"]
        folder = self.configuration["WorkingDir"] or "/"
        inside = ["/usr/bin/env", "--ignore-environment", f"--chdir={folder}", *environment, *command]
        # Not `buildah run`: with its output in a pipe it loses some of it at times.
        started = ["chroot", f"--userspec={self.configuration['User']}", self.root, *inside]
        answer = subprocess.run(started, check=False, capture_output=True, text=True, timeout=300)
        assert answer.returncode == 0, f"{command} ended with {answer.returncode}: {answer.stderr}"
        return answer.stdout


@contextmanager
def opened(archive: Path, folder: Path) -> Iterator[OpenedImage]:
    """Opens a docker archive for the time of a block, with buildah's storage in an empty folder."""
    folders = ("--root", str(folder / "root"), "--runroot", str(folder / "run"))
    buildah = ("buildah", *folders, "--storage-driver", "overlay")

    def call(*arguments: str) -> str:
        return subprocess.run([*buildah, *arguments], check=True, capture_output=True, text=True).stdout.strip()

    container = call("from", f"docker-archive:{archive}")
    try:
        described = json.loads(call("inspect", container))
        yield OpenedImage(
            configuration=described["Docker"]["config"],
            layer_bytes=_layer_bytes(archive),
            root=Path(call("mount", container)),
        )
    finally:
        call("rm", container)


def _layer_bytes(archive: Path) -> tuple[int, ...]:
    with tarfile.open(archive) as tar:
        manifest = tar.extractfile("manifest.json")
        assert manifest is not None
        return tuple(tar.getmember(name).size for name in json.load(manifest)[0]["Layers"])
