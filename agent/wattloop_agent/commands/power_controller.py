"""The program that a monitor starts: ``python -m wattloop_agent.commands.power_controller``."""

from __future__ import annotations

import argparse
import os
import socket
import sys

from wattloop.errors import OperationError
from wattloop_agent.agent_logs import set_up_logs
from wattloop_agent.agent_settings import add_options, settings_from
from wattloop_agent.power_controller_main import run_power_controller


def main() -> int:
    """Run the power controller on the inherited connections."""
    parser = argparse.ArgumentParser(
        prog="python -m wattloop_agent.commands.power_controller", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--connection", type=int, nargs="+", required=True, metavar="FD", help="the inherited sockets")
    add_options(parser)
    arguments = parser.parse_args()
    # Only the command line counts: the monitor has read the environment and the config file.
    settings = settings_from(arguments, {})
    set_up_logs(settings.log_format, settings.log_level)
    for descriptor in arguments.connection:
        os.set_inheritable(descriptor, False)
    try:
        return run_power_controller(settings, [socket.socket(fileno=descriptor) for descriptor in arguments.connection])
    except OperationError as error:
        sys.stderr.write(f"wattloop agent: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
