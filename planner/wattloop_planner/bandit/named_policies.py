"""The policies by the names used in manifests and commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wattloop.errors import UsageError
from wattloop_planner.bandit.fixed import FixedPolicy
from wattloop_planner.bandit.policy import Policy


def _thompson_sampling(**settings: Any) -> Policy:
    from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy  # noqa: PLC0415 - needs NumPy

    return ThompsonSamplingPolicy(**settings)


def _zeus(**settings: Any) -> Policy:
    from wattloop_planner.bandit.zeus_policy import ZeusPolicy  # noqa: PLC0415 - needs NumPy

    return ZeusPolicy(**settings)


def _grid(**settings: Any) -> Policy:
    from wattloop_planner.bandit.grid_policy import GridPolicy  # noqa: PLC0415 - needs NumPy

    return GridPolicy(**settings)


# Imports are deferred: commands that list the names, and an operator without jobs, need no NumPy.
POLICIES: dict[str, Callable[..., Policy]] = {
    "thompsonSampling": _thompson_sampling,
    "zeus": _zeus,
    "grid": _grid,
    "default": FixedPolicy,
}


def policy_named(name: str, **settings: Any) -> Policy:
    """Create the policy with this name.

    Args:
        name: ``thompsonSampling``, ``zeus``, ``grid`` or ``default``.
        **settings: Settings of the policy's class. All have ``crash_budget``; the first two have ``window``.

    Raises:
        UsageError: The policy or a setting does not exist.

    Example:
        >>> policy_named("zeus", window=5)
        ZeusPolicy(window=5, beta=2.0, crash_budget=3, overlap=<Overlap.POSTERIOR: 'posterior'>)
    """
    if name not in POLICIES:
        raise UsageError(f"unknown policy {name!r}; the policies are: {', '.join(POLICIES)}")
    try:
        return POLICIES[name](**settings)
    except TypeError as error:
        raise UsageError(f"invalid settings {settings} of policy {name}: {error}") from error
