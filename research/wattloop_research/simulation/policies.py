"""The policies of `wattloop simulate` and `replay` by name: those of jobs, and `grid`."""

from __future__ import annotations

from typing import Any

from wattloop_planner.bandit import named_policies
from wattloop_planner.bandit.policy import Policy


def _grid(**settings: Any) -> Policy:
    from wattloop_research.simulation.grid_policy import GridPolicy  # noqa: PLC0415 - needs NumPy

    return GridPolicy(**settings)


# In the order of the help.
POLICIES = {name: named_policies.POLICIES.get(name, _grid) for name in ("thompsonSampling", "zeus", "grid", "default")}


def policy_named(name: str, **settings: Any) -> Policy:
    """Create the policy with this name; see `wattloop_planner.bandit.named_policies.policy_named`."""
    return named_policies.policy_named(name, POLICIES, **settings)
