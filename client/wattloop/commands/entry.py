"""The start of the ``wattloop`` program: signals are handled before anything else is imported."""

from __future__ import annotations

import atexit

from wattloop import interruption


def main(arguments: list[str] | None = None) -> int:
    """Run ``wattloop`` as a process of its own; see `wattloop.commands.main.main`."""
    interruption.install()
    # The work is done by then: a signal while the interpreter ends must not change the exit code.
    atexit.register(interruption.ignore_signals)
    from wattloop.commands.main import main as run_command  # noqa: PLC0415 - imports take time, during which one may end it

    return run_command(arguments)
