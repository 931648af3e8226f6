"""`wattloop power select`: selects a power limit from a measured profile."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from wattloop.commands.contract import Command

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


def _run(arguments: argparse.Namespace) -> int:
    from wattloop.power.selectors import Cost, Energy, MaxSlowdown, Selector, Time
    from wattloop_research.power_profile import read_power_profile

    cost = Cost(arguments.eta)
    selectors: dict[str, Selector] = {"energy": Energy(), "time": Time(), "cost": cost}
    selector = selectors.get(arguments.selector) or MaxSlowdown(arguments.factor)
    measurements = read_power_profile(arguments.profile)
    chosen = selector.select(measurements)
    document = {
        "power_limit_watts": chosen.power_limit_watts,
        "energy_joules": chosen.energy_joules,
        "time_seconds": chosen.time_seconds,
        "cost_joules": cost.cost_joules(chosen, measurements),
        "selector": arguments.selector,
        "measurements": [asdict(measurement) for measurement in measurements],
    }
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    return 0


COMMAND = Command(
    description="Selects the power limit of minimum energy, time or cost, or the lowest limit within a slowdown.",
    example=EXAMPLE,
    configure=_configure,
    run=_run,
)
