"""The chart, and a release of it that grants the rights of the operator under test."""

import json
from dataclasses import dataclass
from pathlib import Path

from support.control_plane.commands import ClusterCommand

REPOSITORY = Path(__file__).parents[3]
CHART = REPOSITORY / "helm" / "wattloop"


# A kind that tests define, one that the cluster lacks, and those whose real definitions are used.
KINDS = [
    {"group": group, "kind": "TrainSet", "resource": "trainsets"}
    for group in ("stand-in.example.com", "nowhere.example.com")
] + [
    {"group": "jobset.x-k8s.io", "kind": "JobSet", "resource": "jobsets"},
    {"group": "trainer.kubeflow.org", "kind": "TrainJob", "resource": "trainjobs"},
    {"group": "kubeflow.org", "kind": "PyTorchJob", "resource": "pytorchjobs"},
    {"group": "ray.io", "kind": "RayJob", "resource": "rayjobs"},
    {"group": "ray.io", "kind": "RayCluster", "resource": "rayclusters", "readOnly": True},
]


@dataclass(frozen=True)
class Release:
    """An installed chart.

    Attributes:
        namespace: Namespace of the operator and its Lease.
        operator_service_account: Service account of the operator.
    """

    name: str
    namespace: str
    operator_service_account: str


def install_for_operator_under_test(helm: ClusterCommand) -> Release:
    """Install roles and bindings with the chart's defaults, but no pod: the operator under test is a process.

    The custom resource definitions must be installed.
    """
    release = Release("wattloop", "wattloop", "wattloop-operator")
    helm(
        "install",
        release.name,
        str(CHART),
        "--create-namespace",
        "--set=crds.install=false,operator.replicas=0,operator.kueue=true,agent.enabled=false,admission.queues.enabled=true",
        f"--set-json=operator.workloadKinds={json.dumps(KINDS)}",
        # The administrator replaces the kubelet, which requests pods' tokens. The other user is the operator of a
        # second release in the same cluster: tests/cluster/operator/test_namespaces.py.
        "--set=admission.reportTokens.users={admin,system:serviceaccount:narrow:narrow-wattloop-operator}",
        namespace=release.namespace,
    )
    return release
