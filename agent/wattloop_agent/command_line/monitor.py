"""``wattloop monitor``: energy and power of this machine's GPUs, read as any user may."""

from __future__ import annotations

import argparse
from pathlib import Path

from wattloop.commands.contract import Command, Deferred
from wattloop.commands.settings import seconds

YEAR_SECONDS = 365 * 86400


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``wattloop monitor``."""
    parser.add_argument(
        "--seconds",
        type=_seconds,
        metavar="S",
        help="measure for this time, then print the usage; default: until Ctrl-C",
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output format; default: table")
    parser.add_argument("--nvml-library", type=Path, metavar="PATH", help="the libnvidia-ml.so.1 to load")


def _seconds(text: str) -> float:
    try:
        return seconds(0.001, YEAR_SECONDS)(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected {error}") from error


COMMAND = Command(
    description="Shows the energy that each GPU used since the start, its power, limit and clock: a live table until "
    "Ctrl-C, or for --seconds. It only reads, and needs neither root nor an agent.",
    example="  wattloop monitor\n  wattloop monitor --seconds 10 --format json",
    configure=configure,
    run=Deferred("wattloop_agent.commands.monitor:run"),
)
