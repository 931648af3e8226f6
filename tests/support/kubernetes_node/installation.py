"""Wattloop on the node, as an administrator installs it: images, two namespaces, the chart by Helm."""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from support.control_plane.chart import CHART
from support.control_plane.commands import ClusterCommand
from support.kubernetes_node.containerd import import_images
from support.kubernetes_node.folders import NodeFolders
from support.kubernetes_node.node import About

RELEASE = "wattloop"
OPERATORS = "wattloop-system"
AGENTS = "wattloop-agent"
POD_SECURITY = {OPERATORS: "restricted", AGENTS: "privileged"}
VALUES = {
    # The administrator asks for tokens of pods, as an attacker who has stolen one would have it.
    "admission.reportTokens.users": "{admin}",
    "agent.createNamespace": "false",
    "agent.namespace": AGENTS,
    # For trainings whose metric is in their log.
    "operator.readPodLogs": "true",
    # For trainings that wait in a queue.
    "operator.kueue": "true",
    # All the time, since to enable it for one test takes two upgrades.
    "ui.enabled": "true",
}
"""The values that tests need. All others are the chart's own."""
WITHOUT_SOCKETS = {"agent.mountSocket": "false"}
"""The values of a release whose training pods do not get the agent's socket."""
_INSTALL_SECONDS = 400


def kubectl_of(about: About) -> ClusterCommand:
    """kubectl as an administrator."""
    return ClusterCommand(Path(about.programs["kubectl"]), Path(about.kubeconfig), Path(about.folder) / "home")


def helm_of(about: About) -> ClusterCommand:
    """Helm as an administrator."""
    return ClusterCommand(Path(about.programs["helm"]), Path(about.kubeconfig), Path(about.folder) / "home")


def prepare(about: About, images: Iterable[Path]) -> None:
    """Imports the images, and makes the two namespaces with what Pod Security is to enforce in them."""
    import_images(NodeFolders(Path(about.folder)), list(images))
    kubectl_of(about).apply(*(namespace(name, pod_security=level) for name, level in POD_SECURITY.items()))


def write_chart(about: About) -> Path:
    """Writes the chart as it is, except that the node's folders are those of this node; returns its path.

    A usual node has them at fixed places, which are not the tests' own on a developer's machine.
    """
    folders = NodeFolders(Path(about.folder))
    places = {
        "socketFolder": folders.agent_socket,
        "stateFolder": folders.agent_state,
        "kubeletFolder": folders.kubelet_root,
        "podLogsFolder": folders.pod_logs,
    }
    shutil.copytree(CHART, folders.chart, dirs_exist_ok=True)
    definitions = folders.chart / "templates" / "agent" / "_folders.tpl"
    assert all(f'"wattloop.{name}"' in definitions.read_text(encoding="utf-8") for name in places)
    lines = (f'{{{{- define "wattloop.{name}" -}}}}{place}{{{{- end -}}}}\n' for name, place in places.items())
    definitions.write_text("".join(lines), encoding="utf-8")
    return folders.chart


def namespace(name: str, *, pod_security: str) -> dict[str, Any]:
    """A namespace whose pods must keep to a level of Pod Security."""
    labels = {"pod-security.kubernetes.io/enforce": pod_security}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def install(about: About, values: Mapping[str, str] | None = None, *, verb: str = "install") -> str:
    """Installs the chart, and returns when all of its pods are ready; what Helm said."""
    settings = [f"--set={name}={value}" for name, value in (VALUES | dict(values or {})).items()]
    waiting = ["--wait", f"--timeout={_INSTALL_SECONDS}s"]
    arguments = [verb, RELEASE, str(write_chart(about)), *settings, *waiting]
    return helm_of(about)(*arguments, namespace=OPERATORS, timeout=_INSTALL_SECONDS + 30)


def mounts_sockets(about: About) -> bool:
    """Whether training pods of the installed release get the agent's socket."""
    values = json.loads(helm_of(about)("get", "values", RELEASE, "--output=json", namespace=OPERATORS))
    return bool(values["agent"].get("mountSocket", True))


def uninstall(about: About) -> str:
    """Uninstalls the release, and returns when its objects are gone; what Helm said."""
    arguments = ["uninstall", RELEASE, "--wait", f"--timeout={_INSTALL_SECONDS}s"]
    return helm_of(about)(*arguments, namespace=OPERATORS, timeout=_INSTALL_SECONDS + 30)
