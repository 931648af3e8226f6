"""People other than the administrator: known by a token, with the rights that RBAC gives them."""

import base64
from pathlib import Path

import yaml
from kubernetes import client

from support.chart.rights import await_right_to_create
from support.control_plane.commands import ClusterCommand
from support.control_plane.kubeconfig import write_kubeconfig
from support.control_plane.tokens import service_account_token
from support.kubernetes_node.node import About

PERSON = "person"
SOCKET_LABELS = {"pod-security.kubernetes.io/enforce": "privileged", "wattloop.dev/agent-socket": "baseline"}

RESTRICTED_SECURITY = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""The security context of a container that Pod Security `restricted` admits."""


def make_editor(about: About, kubectl: ClusterCommand, core: client.CoreV1Api, namespace: str) -> Path:
    """Creates a namespace and a user with only Kubernetes' own role `edit` in it, once it is in effect."""
    kubectl.apply(
        # The labels of docs/configuration.md for namespaces whose trainings mount the agent's socket.
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": SOCKET_LABELS}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": PERSON, "namespace": namespace}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": PERSON, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": PERSON, "namespace": namespace}],
        },
    )
    await_right_to_create(core.api_client, namespace, PERSON, "configmaps", "recurringtrainingjobs.wattloop.dev")
    return kubeconfig_of(about, core, namespace, PERSON)


def restrict(kubectl: ClusterCommand, namespace: str) -> None:
    """Has Pod Security enforce `restricted` in a namespace, so that no pod mounts a socket."""
    labels = ["pod-security.kubernetes.io/enforce=restricted", "wattloop.dev/agent-socket-"]
    kubectl("label", "namespace", namespace, "--overwrite", *labels)


def kubeconfig_of(about: About, core: client.CoreV1Api, namespace: str, service_account: str) -> Path:
    """A kubeconfig of exactly that account's rights."""
    admin = yaml.safe_load(Path(about.kubeconfig).read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    return write_kubeconfig(
        Path(about.folder) / f"{namespace}.{service_account}.kubeconfig",
        server=admin["server"],
        authority=base64.b64decode(admin["certificate-authority-data"]),
        token=service_account_token(core, namespace, service_account),
        namespace=namespace,
    )
