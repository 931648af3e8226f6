"""``python -m wattloop`` runs the program ``wattloop``, for a Python whose programs are in no ``PATH``."""

from __future__ import annotations

import sys

from wattloop.commands.entry import main

if __name__ == "__main__":
    sys.exit(main(program="python -m wattloop"))
