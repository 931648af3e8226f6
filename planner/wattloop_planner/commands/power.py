"""`wattloop power select`: selects a power limit from a measured profile."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from wattloop.power.selectors import Cost, Energy, MaxSlowdown, Selector, Time
from wattloop_planner.power_profile import read_profile


def run(arguments: argparse.Namespace) -> int:
    """Execute ``wattloop power``."""
    cost = Cost(arguments.eta)
    selectors: dict[str, Selector] = {"energy": Energy(), "time": Time(), "cost": cost}
    selector = selectors.get(arguments.selector) or MaxSlowdown(arguments.factor)
    profile = read_profile(arguments.profile)
    chosen = selector.select(profile.measurements)
    document = {
        "power_limit_watts": chosen.power_limit_watts,
        "energy_joules": chosen.energy_joules,
        "time_seconds": chosen.time_seconds,
        "cost_joules": cost.cost_joules(chosen, profile.measurements),
        "selector": arguments.selector,
        "measurements": [asdict(measurement) for measurement in profile.measurements],
    }
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    return 0
