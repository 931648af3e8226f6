"""The Service with which the pods of an indexed Job find each other."""

from typing import Any

from support.control_plane.commands import ClusterCommand
from support.control_plane.driven_job import DrivenJob, condition


def template(**job: Any) -> dict[str, Any]:
    container = {"name": "train", "image": "example.invalid/train:1"}
    pods = {"restartPolicy": "Never", "containers": [container]}
    return {"spec": {"completionMode": "Indexed", **job, "template": {"spec": pods}}}


def test_the_pods_of_an_attempt_get_a_service_that_the_recurrence_owns(
    driven: DrivenJob, kubectl: ClusterCommand
) -> None:
    driven.begin(template=template(completions=2, parallelism=2))
    key, name = driven.key, driven.name_of()
    service = kubectl.json("get", "service", name, namespace=key.namespace)
    recurrence = kubectl.json("get", "trec", name, namespace=key.namespace)
    assert [owner["uid"] for owner in service["metadata"]["ownerReferences"]] == [recurrence["metadata"]["uid"]]
    assert service["spec"]["clusterIP"] == "None"
    pods = driven.kubelet.pods_of_job(name, key.namespace, count=2)
    assert {pod["spec"]["hostname"] for pod in pods} == {f"{name}-0", f"{name}-1"}
    assert {pod["spec"]["subdomain"] for pod in pods} == {name}
    for pod in pods:
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        # As the kubelet gives it to the variables RANK and PET_NODE_RANK.
        assert pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] in pod["spec"]["hostname"]
        addresses = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
        assert addresses["MASTER_ADDR"] == f"{name}-0.{name}"
    # A second operator, or the same one after a restart, finds it there.
    driven.reconcile()


def test_a_service_of_someone_else_is_not_used(driven: DrivenJob, kubectl: ClusterCommand) -> None:
    driven.apply(template=template(completions=2, parallelism=2))
    key, name = driven.key, driven.name_of()
    own = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}
    kubectl.apply(own, namespace=key.namespace)
    driven.reconcile()
    ready = condition(driven.job, "Ready")
    assert ready["status"] == "False"
    assert f"a Service {key.namespace}/{name} exists that Wattloop did not make; delete it" in ready["message"]
