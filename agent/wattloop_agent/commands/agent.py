"""``wattloop agent``: the node agent in the foreground."""

from __future__ import annotations

import argparse
import os

from wattloop import interruption
from wattloop.errors import UsageError
from wattloop_agent.settings import settings_from


def run(arguments: argparse.Namespace) -> int:
    """Run the part asked for until it is told to end."""
    settings = settings_from(arguments, os.environ)
    if arguments.ready_descriptor is not None:
        _check_descriptor(arguments.ready_descriptor)
    # Each part imports what it needs and no more: the setter is to stay small.
    from wattloop_agent.telemetry.logs import set_up_logs  # noqa: PLC0415

    set_up_logs(settings.log_format, settings.log_level)
    if arguments.restore_only:
        from wattloop_agent.setter.main import restore_everything  # noqa: PLC0415

        return restore_everything(settings)
    if settings.part == "setter":
        from wattloop_agent.setter.main import run_setter  # noqa: PLC0415

        return run_setter(settings)
    if settings.part == "reader":
        # With a setter of its own it has to be able to end that, and is its user's on a laptop.
        from wattloop_agent.reader.confinement.confine import confine  # noqa: PLC0415

        with interruption.without_thread():
            confine(settings.pod_logs if settings.identity == "pod" else None)
    from wattloop_agent.reader.main import run_reader  # noqa: PLC0415

    return run_reader(settings, arguments.watch_parent, arguments.ready_descriptor)


def _check_descriptor(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except (OSError, OverflowError) as error:
        raise UsageError(f"--ready-descriptor: found {descriptor}, expected an open file descriptor") from error
