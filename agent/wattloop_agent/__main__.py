"""``python -m wattloop_agent``: the same as ``wattloop agent``, for a process that starts one without a PATH."""

import sys

from wattloop.commands.entry import main

if __name__ == "__main__":
    sys.exit(main(["agent", *sys.argv[1:]]))
