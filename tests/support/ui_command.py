"""`kubectl wattloop ui` as a user starts it, and its page."""

import contextlib
import os
import re
import signal
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import httpx

from support.control_plane.commands import ClusterCommand

SCRIPTS = Path(sysconfig.get_path("scripts"))


def command(kubectl: ClusterCommand, kubeconfig: Path, *words: str, subcommand: str = "ui") -> subprocess.Popen[str]:
    environment = {
        "PATH": f"{SCRIPTS}:{kubectl.program.parent}:{os.environ['PATH']}",
        "HOME": str(kubectl.home),
        "KUBECONFIG": str(kubeconfig),
    }
    line = [kubectl.program, "wattloop", subcommand, "--bind", "127.0.0.1:0", *words]
    return subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def serving(kubectl: ClusterCommand, kubeconfig: Path, *words: str, subcommand: str = "ui") -> Iterator[httpx.Client]:
    """`kubectl wattloop ui`, or `ui-server`, as the user of a kubeconfig."""
    with command(kubectl, kubeconfig, *words, subcommand=subcommand) as process:
        try:
            assert process.stderr is not None
            said = ""
            while (found := re.search(r"live page(?: at|: serving) (\S+)", said)) is None:
                line = process.stderr.readline()
                assert line, said
                said += line
            with httpx.Client(base_url=found[1], timeout=90) as page:
                yield page
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 130
        finally:
            process.kill()
