"""``wattloop agent``: the node agent in the foreground."""

from __future__ import annotations

import argparse

from wattloop.commands.contract import Command, Deferred
from wattloop_agent.settings import add_options


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


COMMAND = Command(
    description="Holds GPUs at power limits for those who ask, as leases that are given back whatever dies, and tells "
    "the GPUs' energy counters. Every setting is an option, an environment variable or a key of the config file, in "
    "this order.",
    example="  wattloop agent --socket /run/wattloop/agent.sock --metrics-bind 127.0.0.1:9402\n"
    "  wattloop agent --restore-only --state-directory /var/lib/wattloop/agent",
    configure=configure,
    run=Deferred("wattloop_agent.commands.agent:run"),
)
