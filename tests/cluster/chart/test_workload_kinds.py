"""Kinds of workload that operator.workloadKinds names: the operator's rights, their authors, and tokens for reports."""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from support.chart.admission import await_refusal, object_refusal
from support.chart.empty_cluster import HOME, EmptyCluster, running_empty_cluster
from support.chart.rights import granted_soon
from support.chart.training_jobs import job
from support.control_plane.chart import CHART, REPOSITORY
from support.control_plane.commands import CommandError
from support.control_plane.waiting import LONGEST_WAIT_SECONDS

GROUP = "stand-in.example.com"
CONTROLLER = "system:serviceaccount:stand-in:controller"
KIND = {"group": GROUP, "kind": "TrainSet", "resource": "trainsets", "controller": CONTROLLER}
SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"trainsets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "TrainSet", "plural": "trainsets", "singular": "trainset"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}],
    },
}
TOKENS = "may not create a token with the audience wattloop.dev/report"


def train_set(audience: str) -> dict[str, Any]:
    token = {"projected": {"sources": [{"serviceAccountToken": {"audience": audience, "path": "token"}}]}}
    pod = {"containers": [{"name": "train", "image": "x:1"}], "volumes": [{"name": "token", **token}]}
    spec = {
        "groups": [{"name": "workers", "template": {"spec": pod}}],
        "count": 2,
        "share": 0.5,
        "on": True,
        "no": None,
    }
    return {"apiVersion": f"{GROUP}/v1", "kind": "TrainSet", "metadata": {"name": "probe"}, "spec": spec}


@pytest.fixture(scope="module")
def cluster(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmptyCluster]:
    """A cluster with the chart and a kind that its values name."""
    with running_empty_cluster(programs, tmp_path_factory.mktemp("workload-kinds")) as empty:
        install(empty)
        yield empty


def install(empty: EmptyCluster) -> None:
    empty.kubectl.apply(CRD)
    values = f"--set-json=operator.workloadKinds={json.dumps([KIND])}"
    empty.helm("install", "wattloop", str(CHART), values, "--set=agent.enabled=false", namespace=HOME)
    empty.kubectl("wait", "--for=condition=Established", f"crd/trainsets.{GROUP}", "--timeout=150s")
    empty.kubectl("wait", "--for=condition=Established", f"--filename={REPOSITORY / 'crds'}", "--timeout=150s")
    await_refusal(lambda: object_refusal(empty.client, train_set("wattloop.dev/report"), namespace="default"), TOKENS)


def test_a_listed_kind_is_allowed_for_the_operator_and_authors(cluster: EmptyCluster) -> None:
    expected = {"get", "create", "delete"}
    access = {"admin": cluster.client.client, "namespace": HOME, "service_account": "wattloop-operator"}
    assert granted_soon(expected, resource=f"trainsets.{GROUP}", where="default", **access) == expected

    # Kubernetes' role edit does not include objects of this kind.
    cluster.kubectl("create", "rolebinding", "editor", "--clusterrole=edit", "--user=eve", namespace="default")
    recurring = job(workload={key: train_set("x")[key] for key in ("apiVersion", "kind", "spec")})
    as_editor = ("apply", "--server-side", "--filename=-", "--as=eve")
    await_refusal(lambda: applied(cluster, recurring, *as_editor), f"eve may not create trainsets.{GROUP}")
    role = ("create", "role", "sets", "--verb=create", f"--resource=trainsets.{GROUP}")
    cluster.kubectl(*role, namespace="default")
    cluster.kubectl("create", "rolebinding", "sets", "--role=sets", "--user=eve", namespace="default")
    assert applied_soon(cluster, recurring, *as_editor)


def test_only_the_operator_and_the_kinds_controller_create_workloads_with_report_tokens(cluster: EmptyCluster) -> None:
    mine = train_set("wattloop.dev/report")
    assert TOKENS in object_refusal(cluster.client, mine, namespace="default")
    assert object_refusal(cluster.client, train_set("another.example"), namespace="default") == ""
    binding = ("create", "clusterrolebinding", "everything", "--clusterrole=cluster-admin")
    operator = f"system:serviceaccount:{HOME}:wattloop-operator"
    cluster.kubectl(*binding, f"--user={operator}", f"--user={CONTROLLER}")
    for user in (operator, CONTROLLER):
        assert applied_soon(cluster, mine, "apply", "--server-side", "--filename=-", f"--as={user}")
    # A user with the right to change an object of the operator keeps it.
    cluster.kubectl("label", "trainset", "probe", "team=a", namespace="default")


def applied(cluster: EmptyCluster, body: dict[str, Any], *command: str) -> str:
    try:
        cluster.kubectl(*command, namespace="default", stdin=json.dumps(body))
    except CommandError as error:
        return error.stderr
    return ""


def applied_soon(cluster: EmptyCluster, body: dict[str, Any], *command: str) -> bool:
    """Whether it is accepted once the server's caches have caught up with a role just bound."""
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while message := applied(cluster, body, *command):
        assert time.monotonic() < deadline, message
        time.sleep(0.1)
    return True
