"""A node as those see it who use it: started as a process of its own, or found running already."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.kubernetes_node.node import About
from support.python_path import PYTHON_PATH

FOLDER_VARIABLE = "WATTLOOP_NODE"
"""Names the folder of a node that runs already (`make cluster`): the tests then use that one and the Wattloop on it,
and leave both running."""
_ENDS_WITHIN_SECONDS = 240.0
# Another session's tests take about so long.
_WAITS_SECONDS = 800.0


class NodeFailedError(Exception):
    """The node did not start or did not end in order; the text is its output."""


def runs_already() -> bool:
    """Whether the environment names a node that runs."""
    return bool(os.environ.get(FOLDER_VARIABLE))


def supervisor_command(*options: str) -> list[str]:
    """The command of the process that holds a node together."""
    module = "support.kubernetes_node.supervisor"
    return ["/usr/bin/env", f"PYTHONPATH={PYTHON_PATH}", sys.executable, "-m", module, *options]


@contextlib.contextmanager
def running_node(*, gpus: int = 4) -> Iterator[About]:
    """A node that runs as long as the context, or the one that the environment names.

    It ends, and leaves nothing, also when this process is killed.

    Raises:
        NodeFailedError: It did not start (another one may run on this machine), or did not end in order.
    """
    if runs_already():
        yield About.read(Path(os.environ[FOLDER_VARIABLE]))
        return
    with tempfile.TemporaryFile("w+") as said:
        with subprocess.Popen(
            supervisor_command(f"--gpus={gpus}", "--end-with-stdin", f"--wait={_WAITS_SECONDS}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            # Ctrl-C must reach the tests first: they end the node.
            start_new_session=True,
        ) as supervisor:
            assert supervisor.stdout is not None
            assert supervisor.stdin is not None
            try:
                folder = supervisor.stdout.readline().strip()
                if folder:
                    yield About.read(Path(folder))
            finally:
                supervisor.stdin.close()
                supervisor.wait(_ENDS_WITHIN_SECONDS)
        if supervisor.returncode != 0 or not folder:
            said.seek(0)
            raise NodeFailedError(f"the node ended with {supervisor.returncode}:\n{said.read()}")
