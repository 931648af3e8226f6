"""``python -m wattloop_agent``: ``wattloop agent`` for a process that has no PATH."""

import sys

from wattloop.commands.entry import main

if __name__ == "__main__":
    sys.exit(main(["agent", *sys.argv[1:]]))
