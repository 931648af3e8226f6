"""The policies by the names that manifests and commands use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wattloop.errors import UsageError
from wattloop_planner.bandit.fixed import FixedPolicy
from wattloop_planner.bandit.grid import GridPolicy
from wattloop_planner.bandit.policy import Policy


def _thompson_sampling(**settings: Any) -> Policy:
    from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy  # noqa: PLC0415 - needs SciPy

    return ThompsonSamplingPolicy(**settings)


def _zeus(**settings: Any) -> Policy:
    from wattloop_planner.bandit.zeus import ZeusPolicy  # noqa: PLC0415 - needs NumPy

    return ZeusPolicy(**settings)


# The names cost nothing: commands list them, and an operator without jobs needs no numerical library.
POLICIES: dict[str, Callable[..., Policy]] = {
    "thompsonSampling": _thompson_sampling,
    "zeus": _zeus,
    "grid": GridPolicy,
    "default": FixedPolicy,
}


def policy_named(name: str, **settings: Any) -> Policy:
    """The policy of this name.

    Args:
        name: ``thompsonSampling``, ``zeus``, ``grid`` or ``default``.
        **settings: Its settings, as its class documents them (``crash_budget`` all, ``window`` the first two).

    Raises:
        UsageError: There is no such policy, or it has no such setting.

    Example:
        >>> policy_named("zeus", window=5)
        ZeusPolicy(window=5, beta=2.0, crash_budget=3)
    """
    if name not in POLICIES:
        raise UsageError(f"there is no policy {name!r}; there are: {', '.join(POLICIES)}")
    try:
        return POLICIES[name](**settings)
    except TypeError as error:
        raise UsageError(f"policy {name} cannot be set up with {settings}: {error}") from error
