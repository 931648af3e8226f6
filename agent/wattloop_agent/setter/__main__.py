"""``python -m wattloop_agent.setter --connection FD FD``: the setter that a reader starts for itself."""

from __future__ import annotations

import argparse
import os
import socket
import sys

from wattloop.errors import CannotError
from wattloop_agent.setter.main import run_setter
from wattloop_agent.settings import add_options, settings_from
from wattloop_agent.telemetry.logs import set_up_logs


def main() -> int:
    """Run the setter on the connections that were inherited."""
    parser = argparse.ArgumentParser(prog="python -m wattloop_agent.setter", description=__doc__, allow_abbrev=False)
    parser.add_argument("--connection", type=int, nargs="+", required=True, metavar="FD", help="the inherited sockets")
    add_options(parser)
    arguments = parser.parse_args()
    # Only what the reader says on the command line: it has read the environment and the file already.
    settings = settings_from(arguments, {})
    set_up_logs(settings.log_format, settings.log_level)
    for descriptor in arguments.connection:
        os.set_inheritable(descriptor, False)
    try:
        return run_setter(settings, [socket.socket(fileno=descriptor) for descriptor in arguments.connection])
    except CannotError as error:
        sys.stderr.write(f"wattloop agent: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
