"""Builds the product's images with its own images/build.py, by buildah, on a base of our own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from support.images.base import base_archive
from support.images.caching import made_once

REPOSITORY = Path(__file__).resolve().parents[3]
BUILD = REPOSITORY / "images" / "build.py"
NAMES = ("operator", "ui", "agent", "digits")
SOURCES = tuple(
    REPOSITORY / name
    for name in (
        *("images", "pyproject.toml", "setup.py", "constraints-runtime.txt"),
        *("client", "operator", "agent", "planner", "research", "simulator"),
        "examples/digits",
    )
)
LOCK = REPOSITORY / "constraints-runtime.txt"
PROGRAMS = ("buildah", "mmdebstrap", "cc")


_LINES_OF_OUTPUT_IN_AN_ERROR = 40


class BuildFailedError(Exception):
    """A build failed; the text ends with the last lines of its output."""


class ImagesUnavailableError(Exception):
    """No images can be built on this machine; the text says what to install."""


def default_cache() -> Path:
    """The folder of bases and images: ``$XDG_CACHE_HOME/wattloop/images``."""
    configured = os.environ.get("XDG_CACHE_HOME")
    return (Path(configured) if configured else Path.home() / ".cache") / "wattloop" / "images"


def missing_requirement() -> str | None:
    """Why no images can be built here, in one line; None where they can."""
    if os.geteuid() != 0:
        return "building images needs root"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"building images needs {', '.join(missing)}: apt-get install buildah mmdebstrap gcc libc6-dev"
    return None


def built_images(cache: Path | None = None) -> dict[str, Path]:
    """The docker archives of the product's images, by name.

    Each archive contains its name, ``docker.io/wattloop/<name>:<version>``. If the cache has the archives of the
    present sources, nothing is built. Otherwise the build takes about two minutes.

    Args:
        cache: Default: `default_cache`.
    """
    missing = missing_requirement()
    if missing is not None:
        raise ImagesUnavailableError(missing)
    cache = cache or default_cache()
    base = base_archive(cache)
    made_from: list[str | Path] = [base.parent.name, sys.version, *SOURCES]
    folder = made_once(cache, "archives", made_from, lambda unfinished: _build(cache, base, unfinished))
    return {name: folder / f"{name}.tar" for name in NAMES}


def _build(cache: Path, base: Path, folder: Path) -> None:
    # Parts that change seldom are cached: the dependencies' wheels, the layers made from them, and the SBOMs.
    lock: list[str | Path] = [base.parent.name, sys.version, LOCK]
    dependencies = made_once(cache, "dependencies", lock, lambda made: _take("dependencies", made, step=1), keep=1)
    storage = made_once(cache, "layers", lock, lambda _: None, keep=1)
    dependencies /= "dependencies"
    # An SBOM contains what the project table says of Wattloop; the settings of tools beside it change often.
    listed: list[str | Path] = [*lock, json.dumps(_project(), sort_keys=True), BUILD]
    sbom = (
        made_once(cache, "sbom", listed, lambda made: _take("sbom", made, "--dependencies", dependencies, step=2))
        / "sbom"
    )
    buildah = ["buildah", "--root", f"{storage}/root", "--runroot", f"{storage}/run", "--storage-driver", "overlay"]
    command: list[str | Path] = [
        sys.executable,
        BUILD,
        "--builder",
        " ".join(buildah),
        "--base",
        f"docker-archive:{base}",
    ]
    # No namespaces of its own: a machine within a machine may not make them.
    options = ["--builder-option=--isolation=chroot", "--builder-option=--layers"]
    _say(3, f"{', '.join(NAMES)}; a minute or two")
    _run(*command, *options, "--dependencies", dependencies, "--sbom", sbom, *NAMES)
    for name in NAMES:
        image = f"wattloop/{name}:{_version()}"
        archive = f"docker-archive:{folder / name}.tar:docker.io/{image}"
        _run(*buildah, "push", "--quiet", f"localhost/{image}", archive)


def _say(step: int, what: str) -> None:
    sys.stderr.write(f"images: building {step} of 3: {what}\n")


def _take(part: str, folder: Path, *options: str | Path, step: int) -> None:
    """Moves a part of a new build context into a folder."""
    _say(step, part)
    with tempfile.TemporaryDirectory(prefix="wattloop-context-") as aside:
        _run(sys.executable, BUILD, "--context-only", "--context", aside, *options)
        shutil.move(f"{aside}/{part}", folder)


def _run(*command: str | Path) -> None:
    answer = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if answer.returncode != 0:
        last = "\n".join(answer.stdout.splitlines()[-_LINES_OF_OUTPUT_IN_AN_ERROR:])
        raise BuildFailedError(f"{' '.join(map(str, command))} ended with {answer.returncode}:\n{last}")


def _version() -> str:
    return str(_project()["version"])


def _project() -> dict[str, Any]:
    """The project table of pyproject.toml."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        project: dict[str, Any] = tomllib.load(file)["project"]
    return project
