"""Debian with Python, in place of the base that a registry would give."""

import subprocess
from pathlib import Path

from support.images.archive import write_archive
from support.images.caching import made_once

SUITE = "bookworm"
VARIANT = ("--variant=minbase", "--include=python3")
# The official base images omit it too.
LEFT_OUT = ("doc", "info", "locale", "man")


def base_archive(cache: Path) -> Path:
    """The docker archive of the base; made (in half a minute, from Debian's mirror) where the cache has none."""
    options = [*VARIANT, *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT)]

    def make(folder: Path) -> None:
        root = folder / "root.tar"
        subprocess.run(["mmdebstrap", "--quiet", *options, SUITE, root], check=True)
        write_archive(root, folder / "base.tar", "docker.io/wattloop-tests/base:1")
        root.unlink()

    return made_once(cache, "base", [SUITE, *options, Path(__file__).with_name("archive.py")], make) / "base.tar"
