"""The policies by the names used in manifests and commands."""

from collections.abc import Callable, Mapping
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


# Imports are deferred: commands that list the names, and an operator without jobs, need no NumPy.
POLICIES: dict[str, Callable[..., Policy]] = {
    "thompsonSampling": _thompson_sampling,
    "zeus": _zeus,
    "default": FixedPolicy,
}


def policy_named(name: str, policies: Mapping[str, Callable[..., Policy]] = POLICIES, /, **settings: Any) -> Policy:
    """Create the policy with this name.

    Args:
        name: ``thompsonSampling``, ``zeus`` or ``default``.
        policies: The policies by name; a laboratory may have more.
        **settings: Settings of the policy's class.

    Raises:
        UsageError: The policy or a setting does not exist.

    Example:
        >>> policy_named("zeus", window=5)
        ZeusPolicy(window=5, beta=2.0, overlap=<Overlap.POSTERIOR: 'posterior'>)
    """
    if name not in policies:
        raise UsageError(f"unknown policy {name!r}; the policies are: {', '.join(policies)}")
    try:
        return policies[name](**settings)
    except TypeError as error:
        raise UsageError(f"invalid settings {settings} of policy {name}: {error}") from error
