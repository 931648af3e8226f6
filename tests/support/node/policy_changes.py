"""When the node's agent has applied a change of the GPUPowerPolicies."""

import time

from support.control_plane.commands import ClusterCommand
from support.kubernetes_node.installation import AGENTS

_APPLIED_WITHIN_SECONDS = 180.0


class PolicyChanges:
    """The changes that the agent's log states."""

    def __init__(self, kubectl: ClusterCommand) -> None:
        self._kubectl = kubectl
        self._known = len(self._lines())

    def await_next(self) -> None:
        """Wait until the agent has applied a further change."""
        deadline = time.monotonic() + _APPLIED_WITHIN_SECONDS
        while len(self._lines()) <= self._known:
            assert time.monotonic() < deadline, f"the agent applied no change within {_APPLIED_WITHIN_SECONDS:.0f} s"
            time.sleep(0.5)
        self._known = len(self._lines())

    def _lines(self) -> list[str]:
        agents = "--selector=app.kubernetes.io/component=agent"
        log = self._kubectl("logs", agents, "--container=monitor", "--tail=-1", namespace=AGENTS)
        return [line for line in log.splitlines() if "policies applied" in line]
