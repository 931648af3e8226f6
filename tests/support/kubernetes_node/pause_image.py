"""The image of the container that holds a pod's namespaces: one static program that waits, and buries orphans."""

import subprocess
import tarfile
import tempfile
from pathlib import Path

from support.images.archive import write_archive

NAME = "docker.io/wattloop-tests/pause:1"

_SOURCE = """
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { (void)signal; _exit(0); }
static void bury(int signal) { (void)signal; while (waitpid(-1, 0, WNOHANG) > 0) {} }

int main(void) {
    signal(SIGINT, end);
    signal(SIGTERM, end);
    signal(SIGCHLD, bury);
    for (;;) pause();
}
"""


def write_pause_image(archive: Path) -> None:
    """Compiles the program and wraps it as an archive that containerd imports."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as name:
        folder = Path(name)
        (folder / "pause.c").write_text(_SOURCE, encoding="ascii")
        subprocess.run(["cc", "-static", "-Os", "-s", "-o", folder / "pause", folder / "pause.c"], check=True)
        with tarfile.open(folder / "root.tar", "w") as tar:
            tar.add(folder / "pause", "pause")
        write_archive(folder / "root.tar", archive, NAME, command=["/pause"])
