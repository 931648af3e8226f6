"""Leases that violate a policy that was tightened later: they are reported, not changed.

Changing a limit during a training would distort what its job learns, and the limit that a GPU
returns to may violate the policy even more than the held one. docs/decisions/agent.md has the
reasons.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.monitor.policies.policy_limits import PolicyLimits
from wattloop_agent.request_error import RequestError

logger = logging.getLogger(__name__)


def policy_violations(
    leases: Iterable[Mapping[str, Any]], limits: PolicyLimits, products: Mapping[str, str]
) -> dict[tuple[str, str], str]:
    """By (GPU uuid, setting), the held value and the policies that it violates, in words.

    Args:
        leases: As returned by the power controller's ``list`` verb.
        limits: The policies in force.
        products: The GPUs' models, by uuid; policies of a product do not apply to a GPU of unknown
            model.
    """
    found = {}
    for lease in leases:
        setting, held = GpuSetting(lease["setting"]), lease["held"]
        # Ranges apply to every pod; namespaces only say who may set them.
        violation = None if held is None else limits.of(products.get(lease["uuid"], ""), None).violation(setting, held)
        if violation is not None:
            found[lease["uuid"], lease["setting"]] = f"{held:g} {setting.unit}: {violation}"
    return found


class PolicyViolations:
    """Keeps the current violations, and logs each once.

    Args:
        limits: Gives the policies in force; it raises `RequestError` where they are unknown.
        products: Gives the GPUs' models by uuid, as far as they are known.

    Attributes:
        found: As returned by `policy_violations`.
    """

    def __init__(self, limits: Callable[[], PolicyLimits], products: Callable[[], Mapping[str, str]]) -> None:
        self._limits = limits
        self._products = products
        self.found: Mapping[tuple[str, str], str] = {}

    def update(self, leases: Iterable[Mapping[str, Any]]) -> None:
        """Check the leases that the power controller holds now."""
        held = list(leases)
        try:
            found = policy_violations(held, self._limits(), self._products())
        except RequestError:
            # The policies are unknown, which `BoundsFile` reports.
            return
        owners = {(lease["uuid"], lease["setting"]): lease["owner"] for lease in held}
        for key, violation in found.items():
            if self.found.get(key) != violation:
                extra = {"gpu": key[0], "setting": key[1], "owner": owners[key], "violation": violation}
                logger.warning("held outside of a policy until its owner requests again or is gone", extra=extra)
        self.found = found
