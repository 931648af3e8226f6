"""Entry point of the ``wattloop`` program. Handles signals before it imports anything else."""

from __future__ import annotations

import atexit

from wattloop import interruption


def main(arguments: list[str] | None = None) -> int:
    """Run ``wattloop`` as a process; see `wattloop.commands.main.main`."""
    interruption.install()
    # A signal while the interpreter exits must not change the exit code.
    atexit.register(interruption.ignore_signals)
    from wattloop.commands.main import main as run_command  # noqa: PLC0415 - after install, since imports take time

    return run_command(arguments)
