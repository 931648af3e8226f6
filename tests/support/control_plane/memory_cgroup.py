"""A memory cgroup with the limit of a container, in which the kernel kills what takes more."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes.utils.quantity import parse_quantity

from support.control_plane.chart import CHART
from support.kubernetes_node.requirements import CGROUPS

_PREFIX = "wattloop-memory-"
_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.05
# In a mount namespace of its own, the process finds the limit where a container finds it.
_ENTER = 'mount --bind "$1" "$2" && echo $$ > "$2/cgroup.procs" && shift 2 && exec "$@"'


@dataclass(frozen=True)
class _Version:
    """Where a version of cgroups has the memory controller, and the names of its files."""

    root: Path
    limit: str
    peak: str
    events: str


_VERSION_1 = _Version(CGROUPS / "memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control")
_VERSION_2 = _Version(CGROUPS, "memory.max", "memory.peak", "memory.events")


class MemoryCgroup:
    """A cgroup with a limit.

    Args:
        limit_bytes: The limit of all its processes together, and of the pages of files that they use.
    """

    def __init__(self, folder: Path, version: _Version, limit_bytes: int) -> None:
        self._folder = folder
        self._version = version
        self.limit_bytes = limit_bytes
        (folder / version.limit).write_text(str(limit_bytes), encoding="ascii")

    def command(self, program: Sequence[str]) -> list[str]:
        """The command that runs a program in it, with the process id of the command."""
        enter = [shutil.which("unshare") or "unshare", "--mount", "sh", "-c", _ENTER, "sh"]
        return [*enter, str(self._folder), str(self._version.root), *program]

    @property
    def kills(self) -> int:
        """Number of processes that the kernel has killed for the limit."""
        lines = (self._folder / self._version.events).read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    @property
    def peak_bytes(self) -> int:
        """The most that was used at a time, at most the limit. Pages of files that the kernel can drop count too."""
        return int((self._folder / self._version.peak).read_text(encoding="ascii"))

    def process_ids(self) -> list[int]:
        return [int(line) for line in (self._folder / "cgroup.procs").read_text(encoding="ascii").split()]

    def remove(self) -> None:
        """Kill its processes and remove it."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while self._folder.exists():
            for process in self.process_ids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            with contextlib.suppress(OSError):
                self._folder.rmdir()
                return
            assert time.monotonic() < deadline, f"{self._folder} has processes that do not end"
            time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[MemoryCgroup]:
    """A cgroup that is removed at the end; `missing_requirement` returns None where one can be made."""
    version = _version()
    _remove_stale(version.root)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=version.root))
    made = MemoryCgroup(folder, version, limit_bytes)
    try:
        yield made
    finally:
        made.remove()


def operator_limit_bytes() -> int:
    """The limit that the chart gives the operator's container."""
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return int(parse_quantity(values["operator"]["resources"]["limits"]["memory"]))


def missing_requirement() -> str | None:
    """Why no memory cgroup can be made here, in one line; None where one can."""
    if os.geteuid() != 0:
        return "a memory cgroup needs root"
    version = _version()
    try:
        if version is _VERSION_2:
            (version.root / "cgroup.subtree_control").write_text("+memory", encoding="ascii")
        with memory_cgroup(1 << 30) as made:
            made.kills  # noqa: B018 - a file that the controller has
            done = subprocess.run(made.command(["true"]), capture_output=True, text=True, check=False)
    except OSError as error:
        return f"a memory cgroup needs a writable memory controller at {version.root}: {error}"
    return f"a memory cgroup needs unshare and mount: {done.stderr.strip()}" if done.returncode else None


def _version() -> _Version:
    return _VERSION_2 if (CGROUPS / "cgroup.controllers").exists() else _VERSION_1


def _remove_stale(root: Path) -> None:
    """Remove the cgroups of test processes that were killed; their operators have ended with them."""
    for folder in root.glob(f"{_PREFIX}*"):
        if not Path("/proc", folder.name.removeprefix(_PREFIX).partition("-")[0]).exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
