"""``wattloop agent``: the node agent in the foreground."""

from __future__ import annotations

import argparse
import os

from wattloop.commands.contract import Command
from wattloop.errors import UsageError
from wattloop_agent.settings import add_options, settings_from
from wattloop_agent.telemetry.logs import set_up_logs


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``wattloop agent``."""
    add_options(parser)
    parser.add_argument("--watch-parent", type=int, metavar="PID", help="end, restoring, when this process is gone")
    parser.add_argument(
        "--ready-descriptor", type=int, metavar="FD", help="write a line there once the socket is served"
    )
    parser.add_argument(
        "--restore-only", action="store_true", help="give back what an agent that is gone left held, and end"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the part asked for until it is told to end."""
    settings = settings_from(arguments, os.environ)
    if arguments.ready_descriptor is not None:
        _check_descriptor(arguments.ready_descriptor)
    set_up_logs(settings.log_format, settings.log_level)
    # Each part imports what it needs and no more: the setter is to stay small.
    if arguments.restore_only:
        from wattloop_agent.setter.main import restore_everything  # noqa: PLC0415

        return restore_everything(settings)
    if settings.part == "setter":
        from wattloop_agent.setter.main import run_setter  # noqa: PLC0415

        return run_setter(settings)
    from wattloop_agent.reader.main import run_reader  # noqa: PLC0415

    return run_reader(settings, arguments.watch_parent, arguments.ready_descriptor)


def _check_descriptor(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except (OSError, OverflowError) as error:
        raise UsageError(f"--ready-descriptor: found {descriptor}, expected an open file descriptor") from error


COMMAND = Command(
    summary="start the node agent in the foreground",
    description="Holds GPUs at power limits for those who ask, as leases that are given back whatever dies, and tells "
    "the GPUs' energy counters. Every setting is an option, an environment variable or a key of the config file, in "
    "this order.",
    example="  wattloop agent --socket /run/wattloop/agent.sock --metrics-bind 127.0.0.1:9402\n"
    "  wattloop agent --restore-only --state-directory /var/lib/wattloop/agent",
    configure=configure,
    run=run,
)
