"""``wattloop agent``: the node agent in the foreground."""

from __future__ import annotations

import argparse

from wattloop.commands.contract import Command, Deferred
from wattloop_agent.agent_settings import add_options


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``wattloop agent``."""
    add_options(parser)
    parser.add_argument(
        "--watch-parent", type=int, metavar="PID", help="restore the GPUs and end when this process ends"
    )
    parser.add_argument(
        "--ready-descriptor", type=int, metavar="FD", help="write a line to it once the socket is served"
    )
    parser.add_argument(
        "--restore-only", action="store_true", help="restore the GPUs that a dead agent left held, and end"
    )


COMMAND = Command(
    description="Holds GPUs at power limits and clocks on behalf of callers, restores them whatever process dies, and "
    "measures the GPUs' energy. Every setting is an option, an environment variable or a key of the config file, in "
    "this order.",
    example="  wattloop agent --socket /run/wattloop/agent.sock --metrics-bind 127.0.0.1:9402\n"
    "  wattloop agent --restore-only --state-directory /var/lib/wattloop/agent",
    configure=configure,
    run=Deferred("wattloop_agent.commands.agent:run"),
)
