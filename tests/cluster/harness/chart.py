"""The chart, and a release of it that gives the operator under test its rights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.commands import ClusterCommand

REPOSITORY = Path(__file__).parents[3]
CHART = REPOSITORY / "helm" / "wattloop"


@dataclass(frozen=True)
class Release:
    """An installed chart.

    Attributes:
        name: The release's name.
        namespace: Where the operator belongs; its Lease is there.
        operator_service_account: Whose rights the operator has.
    """

    name: str
    namespace: str
    operator_service_account: str


def install_for_operator_under_test(helm: ClusterCommand) -> Release:
    """Installs roles and bindings with the chart's own defaults, but no pod: the operator under test is a process.

    The custom resource definitions must be there.
    """
    release = Release("wattloop", "wattloop", "wattloop-operator")
    helm(
        "install",
        release.name,
        str(CHART),
        "--create-namespace",
        "--set=crds.install=false,operator.replicas=0,agent.enabled=false",
        namespace=release.namespace,
    )
    return release
