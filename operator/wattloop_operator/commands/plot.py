"""`wattloop plot`: plots a job's costs and its energy/time trade-off."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wattloop.errors import OperationError
from wattloop_operator.commands.history import job_history
from wattloop_operator.plots import write_plots


def run(arguments: argparse.Namespace) -> int:
    """Run ``wattloop plot``."""
    history = job_history(arguments)
    folder = Path(arguments.output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OperationError(
            f"{folder}: cannot create the output folder: {error.strerror}; choose another --output"
        ) from error
    for path in write_plots(folder, history):
        sys.stderr.write(f"{path}\n")
    return 0
