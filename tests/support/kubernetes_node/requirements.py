"""The requirements of a node of the tests, and the message for a missing one."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables-save": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "cc": "gcc and libc6-dev",
}
"""The programs that must be on PATH, and their Debian packages."""
CNI_PROGRAMS = Path("/usr/lib/cni")
CGROUPS = Path("/sys/fs/cgroup")


def missing_requirement() -> str | None:
    """Why no node can be started here, in one line; None where one can."""
    if os.geteuid() != 0:
        return "a node needs root: run it as root, on a machine that you may change"
    lacking = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if not (CNI_PROGRAMS / "bridge").exists():
        lacking.append("containernetworking-plugins")
    if lacking:
        return f"a node needs Debian's packages {' '.join(lacking)}: apt-get install {' '.join(lacking)}"
    if "overlay" not in Path("/proc/filesystems").read_text(encoding="ascii"):
        return "a node needs a kernel with overlayfs"
    return _forbidden_requirement()


def _forbidden_requirement() -> str | None:
    """Actions that root may not do here, as in an unprivileged container: each is tried and undone."""
    link = f"wl{os.getpid()}"
    if not _works("ip", "link", "add", link, "type", "bridge"):
        return "a node needs a bridge, and root may make none here: is this a container without NET_ADMIN?"
    _works("ip", "link", "delete", link)
    if not _works("iptables-save"):
        return "a node needs iptables, and the kernel does not allow reading its tables here"
    with tempfile.TemporaryDirectory(prefix="wattloop-needs-") as folder:
        if not _works("mount", "-t", "tmpfs", "none", folder):
            return "a node needs mounts, and root may make none here: is this a container without SYS_ADMIN?"
        _works("umount", folder)
    for root in cgroup_roots():
        try:
            # The kernel removes the files of a cgroup with it.
            Path(tempfile.mkdtemp(prefix="wattloop-needs-", dir=root)).rmdir()
        except OSError as error:
            return f"a node needs cgroups, and root may make none in {root}: {error.strerror}"
    return None


def _works(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False, timeout=120).returncode == 0


def cgroup_roots() -> list[Path]:
    """The roots of all cgroup hierarchies: one with version 2, one a controller with version 1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return sorted(each for each in CGROUPS.iterdir() if each.is_dir() and not each.is_symlink())
