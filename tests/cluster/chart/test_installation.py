"""The chart on a real API server: everything is admitted, and what a user would miss stays when it goes."""

import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.chart.empty_cluster import HOME, EmptyCluster
from support.chart.rendering import chosen, documents, render
from support.chart.training_jobs import JOB, job
from support.control_plane.chart import CHART, REPOSITORY
from support.control_plane.commands import ClusterCommand, CommandError
from support.control_plane.objects import POD
from support.control_plane.waiting import LONGEST_WAIT_SECONDS, Object, wait_until
from wattloop_operator.cluster_check import check_job

AGENTS = "wattloop-agent"
CRD_FILES = sorted((REPOSITORY / "crds").glob("*.yaml"))
POLICY = {"apiVersion": "wattloop.dev/v1alpha1", "kind": "GPUPowerPolicy", "metadata": {"name": "kept"}, "spec": {}}


def install(cluster: EmptyCluster, *arguments: str, release: str = "wattloop") -> str:
    return cluster.helm("install", release, str(CHART), *arguments, namespace=HOME)


def pod_of(cluster: EmptyCluster, namespace: str, component: str) -> Object:
    def first(pods: list[Object]) -> Object | None:
        return pods[0] if pods else None

    return wait_until(
        cluster.client,
        POD,
        first,
        f"a pod of the {component}",
        namespace=namespace,
        label_selector=f"app.kubernetes.io/component={component}",
    )


def uid_of(cluster: EmptyCluster, kind: str, name: str, namespace: str) -> str:
    return str(cluster.kubectl.json("get", kind, name, namespace=namespace)["metadata"]["uid"])


def left_of(cluster: EmptyCluster, manifest: str) -> set[str]:
    """The objects of a release's manifest that are still in the cluster, as Kind/name."""
    found = cluster.kubectl("get", "--filename=-", "--ignore-not-found", "--output=json", stdin=manifest)
    if not found:
        return set()
    parsed: dict[str, Any] = yaml.safe_load(found)
    items = parsed["items"] if parsed["kind"] == "List" else [parsed]
    return {
        f"{item['kind']}/{item['metadata']['name']}" for item in items if "deletionTimestamp" not in item["metadata"]
    }


def test_a_release_is_admitted_uninstalled_and_installed_again_and_users_can_delete_their_objects_without_it(
    empty: EmptyCluster,
) -> None:
    notes = install(empty)
    assert "kubectl apply --filename examples/digits/job.yaml" in notes
    manifest = empty.helm("get", "manifest", "wattloop", namespace=HOME)
    objects = documents(manifest)
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

    empty.kubectl("wait", "--for=condition=Established", f"--filename={REPOSITORY / 'crds'}", "--timeout=150s")
    empty.kubectl.apply(POLICY)
    empty.kubectl.apply(JOB, JOB | {"metadata": {"name": "deleted"}}, namespace="default")
    kept = [uid_of(empty, "rtj", "digits", "default"), uid_of(empty, "pvc", "wattloop-database", HOME)]
    empty.helm("uninstall", "wattloop", "--wait", namespace=HOME)
    assert left_of(empty, manifest) == definitions | {
        "PersistentVolumeClaim/wattloop-database",
        "Secret/wattloop-reporting-authority",
        # Namespaces with its label admit everything without it.
        "ValidatingAdmissionPolicy/wattloop-system.wattloop-agent-socket",
        "ValidatingAdmissionPolicyBinding/wattloop-system.wattloop-agent-socket",
    }
    assert empty.kubectl("get", "gpupowerpolicies", "--output=name").strip() == "gpupowerpolicy.wattloop.dev/kept"
    # No finalizer waits for an operator that is gone.
    empty.kubectl("delete", "rtj", "deleted", "--wait", "--timeout=150s", namespace="default")

    empty.kubectl("wait", "--for=delete", f"namespace/{AGENTS}", "--timeout=150s")
    install(empty)
    assert len(left_of(empty, manifest)) == len(objects)
    assert [uid_of(empty, "rtj", "digits", "default"), uid_of(empty, "pvc", "wattloop-database", HOME)] == kept
    empty.kubectl("delete", f"--filename={REPOSITORY / 'crds'}", "--wait", "--timeout=150s")


def test_the_pods_of_helm_test_and_of_the_page_are_as_restricted_as_the_operators(
    helm: ClusterCommand, kubectl: ClusterCommand, namespace: str, tmp_path: Path
) -> None:
    kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    objects = render(helm, {"ui": {"enabled": True}}, tmp_path)
    (pod,), (page,) = chosen(objects, "Pod/check"), chosen(objects, "Deployment/ui")
    kubectl("create", "serviceaccount", pod["spec"]["serviceAccountName"], namespace=namespace)
    pod["metadata"]["namespace"] = namespace
    kubectl.apply(pod, dry_run=True)
    page_pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "page", "namespace": namespace}}
    page_pod["spec"] = page["spec"]["template"]["spec"] | {"serviceAccountName": pod["spec"]["serviceAccountName"]}
    kubectl.apply(page_pod, dry_run=True)
    template = check_job(namespace, "tiny", "wattloop/operator:1")["spec"]["template"]["spec"]["template"]
    training = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "training"}, **template}
    training["spec"]["serviceAccountName"] = pod["spec"]["serviceAccountName"]
    assert (
        kubectl.apply(training, namespace=namespace, dry_run=True)
        == "pod/training serverside-applied (server dry run)\n"
    )
    training["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(CommandError, match="violates PodSecurity"):
        kubectl.apply(training, namespace=namespace, dry_run=True)


def test_existing_definitions_are_taken_over_only_on_request_and_a_second_operator_never_beside_the_first(
    empty: EmptyCluster,
) -> None:
    empty.kubectl("apply", "--server-side", f"--filename={REPOSITORY / 'crds'}")
    with pytest.raises(CommandError, match="invalid ownership metadata"):
        install(empty)
    install(empty, "--take-ownership", "--force-conflicts", release="another")
    labels = empty.kubectl.json("get", "crd", "recurringtrainingjobs.wattloop.dev")["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == "Helm"

    options = ("--create-namespace", "--set=crds.install=false,agent.namespace=agents-of-b")
    with pytest.raises(CommandError, match=f'of the release "another" in the namespace "{HOME}"'):
        empty.helm("install", "another", str(CHART), *options, namespace="b")
    empty.helm("install", "another", str(CHART), *options, "--set=operator.replicas=0", namespace="b")
    names = empty.kubectl("get", "clusterroles", "--selector=app.kubernetes.io/part-of=wattloop", "--output=name")
    assert len(names.split()) == 6


def chart_of_before(folder: Path) -> Path:
    """The chart as an earlier version could have been: RecurringTrainingJobs did not know maxRecurrences."""
    chart = folder / "wattloop"
    shutil.copytree(CHART, chart)  # the link to crds/ becomes a folder of its own
    about = chart / "Chart.yaml"
    about.write_text(re.sub(r"(?m)^version: .*", "version: 0.0.1", about.read_text(encoding="utf-8")))
    (file,) = (chart / "files" / "crds").glob("*recurringtrainingjobs.yaml")
    definition = yaml.safe_load(file.read_text(encoding="utf-8"))
    properties = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del properties["spec"]["properties"]["maxRecurrences"]
    file.write_text(yaml.safe_dump(definition))
    return chart


def test_an_upgrade_applies_changed_values_brings_new_fields_of_the_definitions_and_keeps_every_object(
    empty: EmptyCluster, tmp_path: Path
) -> None:
    empty.helm("install", "wattloop", str(chart_of_before(tmp_path)), namespace=HOME)
    empty.kubectl("wait", "--for=condition=Established", f"--filename={REPOSITORY / 'crds'}", "--timeout=150s")
    empty.kubectl.apply(JOB, namespace="default")
    empty.kubectl.apply(POLICY)
    before = empty.kubectl.json("get", "rtj", "digits", namespace="default")
    bounded = job(maxRecurrences=3)
    with pytest.raises(CommandError, match="field not declared in schema"):
        empty.kubectl.apply(bounded, namespace="default")
    authority = empty.kubectl.json("get", "secret", "wattloop-reporting-authority", namespace=HOME)["data"]

    options = ("--reset-then-reuse-values", "--set=operator.image.tag=next")
    empty.helm("upgrade", "wattloop", str(CHART), *options, namespace=HOME)

    deployment = empty.kubectl.json("get", "deployment", "wattloop-operator", namespace=HOME)
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "wattloop/operator:next"
    after = empty.kubectl.json("get", "rtj", "digits", namespace="default")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"]
    assert empty.kubectl("get", "gpp", "--output=name").strip() == "gpupowerpolicy.wattloop.dev/kept"
    assert empty.kubectl.json("get", "secret", "wattloop-reporting-authority", namespace=HOME)["data"] == authority

    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while True:
        try:
            empty.kubectl.apply(bounded, namespace="default")
        except CommandError:
            # The server takes a moment to serve the schema that it has stored.
            assert time.monotonic() < deadline
            time.sleep(0.2)
        else:
            break
    assert empty.kubectl.json("get", "rtj", "digits", namespace="default")["spec"]["maxRecurrences"] == 3
