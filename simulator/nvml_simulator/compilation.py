"""Builds the simulated ``libnvidia-ml.so.1`` with the machine's C compiler, once per source and compiler."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from wattloop.errors import OperationError

SONAME = "libnvidia-ml.so.1"
LIBRARY_VARIABLE = "WATTLOOP_SIMULATED_GPUS_LIBRARY"
FLAGS = (
    "-std=c11",
    "-D_GNU_SOURCE",
    "-shared",
    "-fPIC",
    "-O2",
    "-pthread",
    "-fvisibility=hidden",
    # No fused multiply-add: the same work must give the same bits on every machine.
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Werror",
    f"-Wl,-soname,{SONAME}",
)


def build_library() -> Path:
    """The path of the built library, ``…/libnvidia-ml.so.1``; compiles it (some seconds) on first use.

    The library lies under ``$XDG_CACHE_HOME/wattloop/nvml_simulator`` in a folder named by a digest of the sources, the
    flags and the compiler's version. Builds at the same time wait for each other. ``$CC`` names another compiler.
    ``$WATTLOOP_SIMULATED_GPUS_LIBRARY`` names a library that is built already, for where there is no compiler.

    Raises:
        OperationError: There is no C compiler, it refuses the sources, or the cache folder cannot be written.
    """
    built = os.environ.get(LIBRARY_VARIABLE)
    if built:
        return Path(built)
    with resources.as_file(resources.files("nvml_simulator") / "src") as sources:
        compiler = _compiler()
        folder = _cache_folder() / _digest(sources, compiler)
        library = folder / SONAME
        if library.exists():
            return library
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder / "lock"):
                if not library.exists():
                    _compile(compiler, sources, library)
        except OSError as error:
            message = f"cannot write the simulated NVML library into {folder}: {error}; set XDG_CACHE_HOME to a folder"
            raise OperationError(f"{message} that can be written") from error
        return library


def _cache_folder() -> Path:
    configured = os.environ.get("XDG_CACHE_HOME")
    return (Path(configured) if configured else Path.home() / ".cache") / "wattloop" / "nvml_simulator"


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - $CC is the user's own
    except OSError as error:
        raise OperationError(
            f"simulated GPUs need a C compiler, and {command[0]!r} cannot be run ({error.strerror}); install one "
            "(Debian: gcc and libc6-dev) or name it in the environment variable CC"
        ) from error


def _digest(sources: Path, compiler: list[str]) -> str:
    digest = hashlib.sha256()
    version = _run([*compiler, "--version"]).stdout
    for part in (version, platform.machine(), *compiler, *FLAGS):
        digest.update(part.encode() + b"\0")
    for source in sorted(sources.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _compile(compiler: list[str], sources: Path, library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent, prefix="build-") as aside:
        built = Path(aside) / SONAME
        files = [str(source) for source in sorted(sources.glob("*.c"))]
        result = _run([*compiler, *FLAGS, "-o", str(built), *files])
        if result.returncode != 0:
            raise OperationError(
                f"{compiler[0]} could not compile the simulated NVML library (exit code {result.returncode}):\n"
                f"{result.stderr.strip()}"
            )
        built.replace(library)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
