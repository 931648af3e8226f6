"""The chart, and a release of it that gives the operator under test its rights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from support.control_plane.commands import ClusterCommand

REPOSITORY = Path(__file__).parents[3]
CHART = REPOSITORY / "helm" / "wattloop"


# A kind that tests define and one that the cluster does not have.
KINDS = [
    {"group": group, "kind": "TrainSet", "resource": "trainsets"}
    for group in ("stand-in.example.com", "nowhere.example.com")
]


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
        f"--set-json=operator.workloadKinds={json.dumps(KINDS)}",
        # The administrator stands in for the kubelet, which asks for pods' tokens. The other user is the operator
        # of a second release in the same cluster: tests/cluster/operator/test_namespaces.py.
        "--set=admission.reportTokens.users={admin,system:serviceaccount:narrow:narrow-wattloop-operator}",
        namespace=release.namespace,
    )
    return release
