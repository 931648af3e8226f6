"""`wattloop power select`: selects a power limit from a measured profile."""

from __future__ import annotations

import argparse

from wattloop.commands.contract import Command, Deferred

EXAMPLE = "  wattloop power select --profile profile.csv --selector cost --eta 0.5"
SELECTORS = ("energy", "time", "cost", "max-slowdown")


def _configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    select = actions.add_parser(
        "select",
        help="print the power limit selected from a measured profile, as JSON",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"example:\n{EXAMPLE}",
    )
    select.add_argument(
        "--profile",
        required=True,
        help="CSV: power_limit_watts, energy_joules, time_seconds [, gpus]; or JSON of a PowerLimitOptimizer",
    )
    select.add_argument("--selector", choices=SELECTORS, default="cost", help="what to minimise (default: cost)")
    select.add_argument("--eta", type=float, default=0.5, help="weight of energy in the cost, 0 to 1 (default: 0.5)")
    select.add_argument("--factor", type=float, default=1.1, help="maximum slowdown for max-slowdown (default: 1.1)")


COMMAND = Command(
    description="Selects the power limit of minimum energy, time or cost, or the lowest limit within a slowdown.",
    example=EXAMPLE,
    configure=_configure,
    run=Deferred("wattloop_planner.commands.power:run"),
)
