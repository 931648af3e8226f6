"""What pods are told of their surroundings: the same for every workload of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from wattloop_operator.workloads.pod_template import CERTIFICATE_AUTHORITY_FILE, TOKEN_FILE
from wattloop_operator.workloads.run_environment import RunAddresses

AGENT_SOCKET = "agent.sock"


@dataclass(frozen=True)
class ClusterAddresses:
    """Where training pods find what they talk to.

    Attributes:
        report_url: Base address of the reporting API; empty: they report nowhere.
        certificate_authority: Certificates to check it against, PEM; empty: the system's serve.
        agent_folder: Folder of every node with its agent's socket; empty: there are no agents.
    """

    report_url: str = ""
    certificate_authority: str = ""
    agent_folder: str = ""

    def in_pod(self) -> RunAddresses:
        """The same as a training process sees it in its pod."""
        return RunAddresses(
            report_url=self.report_url,
            token_file=TOKEN_FILE if self.report_url else "",
            certificate_authority_file=CERTIFICATE_AUTHORITY_FILE if self.certificate_authority else "",
            agent_socket=f"{self.agent_folder}/{AGENT_SOCKET}" if self.agent_folder else "",
        )
