"""Builds the simulated ``libnvidia-ml.so.1``, once for each source and C compiler."""

import fcntl
import hashlib
import os
import platform
import shlex
import subprocess
import tempfile
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
    # No fused multiply-add: the same work must give the same bits on each machine.
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Werror",
    f"-Wl,-soname,{SONAME}",
)


def build_library() -> Path:
    """Return the path of the library, ``…/libnvidia-ml.so.1``; compile it on first use (seconds).

    The library is in ``$XDG_CACHE_HOME/wattloop/nvml_simulator``, in a folder named by a digest of
    the sources, the flags and the compiler's version. Concurrent builds wait for each other.
    ``$CC`` sets another compiler. ``$WATTLOOP_SIMULATED_GPUS_LIBRARY`` sets the path of a library
    that is already built, for machines without a compiler.

    Raises:
        OperationError: There is no C compiler, the compilation fails, or the cache folder is not writable.
    """
    built = os.environ.get(LIBRARY_VARIABLE)
    if built:
        return Path(built)
    with resources.as_file(resources.files("nvml_simulator") / "src") as sources:
        compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "wattloop" / "nvml_simulator" / _digest(sources, compiler)
        library = folder / SONAME
        if library.exists():
            return library
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not library.exists():
                    _compile(compiler, sources, library)
        except OSError as error:
            message = f"cannot write the simulated NVML library to {folder}: {error}; set XDG_CACHE_HOME to a"
            raise OperationError(f"{message} writable folder") from error
        return library


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the user sets $CC
    except OSError as error:
        raise OperationError(
            f"simulated GPUs need a C compiler, but {command[0]!r} cannot be run ({error.strerror}); install one "
            "(Debian: gcc and libc6-dev) or set the environment variable CC"
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
    with tempfile.TemporaryDirectory(dir=library.parent, prefix="build-") as temporary:
        built = Path(temporary) / SONAME
        files = [str(source) for source in sorted(sources.glob("*.c"))]
        result = _run([*compiler, *FLAGS, "-o", str(built), *files])
        if result.returncode != 0:
            raise OperationError(
                f"{compiler[0]} could not compile the simulated NVML library (exit code {result.returncode}):\n"
                f"{result.stderr.strip()}"
            )
        built.replace(library)
