"""The chart on a real API server: everything is admitted, and what a user would miss stays when it goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config
from kubernetes.dynamic import DynamicClient

from harness.chart import CHART, REPOSITORY
from harness.commands import ClusterCommand, CommandError
from harness.control_plane import running_control_plane
from harness.kubelet import register_node
from harness.waiting import Object, wait_until

HOME = "wattloop-system"
AGENTS = "wattloop-agent"
CRD_FILES = sorted((REPOSITORY / "crds").glob("*.yaml"))
POLICY = {
    "apiVersion": "wattloop.dev/v1alpha1",
    "kind": "GPUPowerPolicy",
    "metadata": {"name": "kept"},
    "spec": {},
}


@dataclass(frozen=True)
class Empty:
    """A cluster that has nothing of Wattloop, not even the definitions."""

    helm: ClusterCommand
    kubectl: ClusterCommand
    client: DynamicClient


@pytest.fixture
def empty(programs: Mapping[str, Path], tmp_path: Path) -> Iterator[Empty]:
    """A control plane of its own with a namespace that admits only restricted pods, and a node with a GPU."""
    home = tmp_path / "home"
    with running_control_plane(programs, tmp_path) as plane:
        kubectl = ClusterCommand(programs["kubectl"], plane.admin_kubeconfig, home)
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        kubectl.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME, "labels": labels}},
            {
                "apiVersion": "node.k8s.io/v1",
                "kind": "RuntimeClass",
                "metadata": {"name": "nvidia"},
                "handler": "nvidia",
            },
        )
        with config.new_client_from_config(str(plane.admin_kubeconfig)) as api_client:
            register_node(client.CoreV1Api(api_client), "gpu-node", {"nvidia.com/gpu.present": "true"})
            yield Empty(
                ClusterCommand(programs["helm"], plane.admin_kubeconfig, home),
                kubectl,
                DynamicClient(api_client, cache_file=str(tmp_path / "discovery.json")),
            )


def install(cluster: Empty, *arguments: str, release: str = "wattloop") -> str:
    return cluster.helm("install", release, str(CHART), *arguments, namespace=HOME)


def pod_of(cluster: Empty, namespace: str, component: str) -> Object:
    def first(pods: list[Object]) -> Object | None:
        return pods[0] if pods else None

    return wait_until(
        cluster.client,
        api_version="v1",
        kind="Pod",
        namespace=namespace,
        label_selector=f"app.kubernetes.io/component={component}",
        condition=first,
        what=f"a pod of the {component}",
    )


def left_of(cluster: Empty, manifest: str) -> set[str]:
    """What of a release's manifest still is in the cluster, as Kind/name."""
    found = cluster.kubectl("get", "--filename=-", "--ignore-not-found", "--output=json", stdin=manifest)
    if not found:
        return set()
    parsed: dict[str, Any] = yaml.safe_load(found)
    items = parsed["items"] if parsed["kind"] == "List" else [parsed]
    return {
        f"{item['kind']}/{item['metadata']['name']}" for item in items if "deletionTimestamp" not in item["metadata"]
    }


def test_a_release_is_admitted_goes_and_comes_again(empty: Empty) -> None:
    notes = install(empty)
    assert "kubectl apply --filename examples/digits/job.yaml" in notes
    manifest = empty.helm("get", "manifest", "wattloop", namespace=HOME)
    objects = [item for item in yaml.safe_load_all(manifest) if item]
    definitions = {
        f"CustomResourceDefinition/{item['metadata']['name']}"
        for item in objects
        if item["kind"] == "CustomResourceDefinition"
    }
    assert len(definitions) == len(CRD_FILES)
    assert len(left_of(empty, manifest)) == len(objects)

    # The controllers could make the pods: their security contexts, accounts and classes are what the cluster allows.
    assert pod_of(empty, HOME, "operator")["spec"]["serviceAccountName"] == "wattloop-operator"
    assert pod_of(empty, AGENTS, "agent")["spec"]["runtimeClassName"] == "nvidia"

    empty.kubectl("wait", "--for=condition=Established", f"--filename={REPOSITORY / 'crds'}", "--timeout=30s")
    empty.kubectl.apply(POLICY)
    empty.helm("uninstall", "wattloop", "--wait", namespace=HOME)
    assert left_of(empty, manifest) == definitions | {"PersistentVolumeClaim/wattloop-database"}
    assert empty.kubectl("get", "gpupowerpolicies", "--output=name").strip() == "gpupowerpolicy.wattloop.dev/kept"

    empty.kubectl("wait", "--for=delete", f"namespace/{AGENTS}", "--timeout=60s")
    install(empty)
    assert len(left_of(empty, manifest)) == len(objects)


def test_definitions_that_are_there_are_taken_over_only_when_told(empty: Empty) -> None:
    empty.kubectl("apply", "--server-side", f"--filename={REPOSITORY / 'crds'}")
    with pytest.raises(CommandError, match="invalid ownership metadata"):
        install(empty)
    install(empty, "--take-ownership", "--force-conflicts", release="another")
    labels = empty.kubectl.json("get", "crd", "recurringtrainingjobs.wattloop.dev")["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == "Helm"


def test_two_releases_in_two_namespaces_do_not_meet(empty: Empty) -> None:
    install(empty)
    options = ("--create-namespace", "--set=crds.install=false,agent.namespace=agents-of-b")
    empty.helm("install", "wattloop", str(CHART), *options, namespace="b")
    names = empty.kubectl("get", "clusterroles", "--selector=app.kubernetes.io/part-of=wattloop", "--output=name")
    assert len(names.split()) == 6


def test_an_upgrade_changes_what_changed(empty: Empty) -> None:
    install(empty)
    empty.helm("upgrade", "wattloop", str(CHART), "--set=operator.image.tag=next", namespace=HOME)
    deployment = empty.kubectl.json("get", "deployment", "wattloop-operator", namespace=HOME)
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "wattloop/operator:next"
