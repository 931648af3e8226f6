"""Entry points of the ``wattloop`` program, and of kubectl's plugin of this name.

They handle signals before they import anything else.
"""

import atexit
import sys

from wattloop import interruption

PLUGIN = "kubectl wattloop"


def main(arguments: list[str] | None = None, program: str = "wattloop") -> int:
    """Run ``wattloop`` as a process; see `wattloop.commands.main.main`."""
    interruption.install(program)
    # A signal while the interpreter exits must not change the exit code.
    atexit.register(interruption.ignore_signals)
    from wattloop.commands.main import main as run_command  # noqa: PLC0415 - after install, since imports take time

    return run_command(arguments, program)


def kubectl_plugin() -> int:
    """Run ``kubectl wattloop``: kubectl runs the program ``kubectl-wattloop`` with the words that follow."""
    return main(program=PLUGIN)


def kubectl_completion() -> int:
    """Complete ``kubectl wattloop``: kubectl runs ``kubectl_complete-wattloop`` with the words of its command line."""
    return main(["completion", "words", "--", *sys.argv[1:]], PLUGIN)
