"""The chart's policy refuses the templates that `wattloop validate` refuses, with its words."""

from typing import Any

from kubernetes.dynamic import DynamicClient

from support.chart.admission import await_refusal, object_refusal
from support.chart.training_jobs import JOB, job
from support.control_plane.chart import Release
from wattloop_operator.api.template_checks import exceeded_limit, wrong_job, wrong_type


def with_pod(**fields: Any) -> dict[str, Any]:
    made = job()
    made["spec"]["template"]["spec"]["template"]["spec"] |= fields
    return made


def nested(levels: int) -> Any:
    """Lists in a pod's spec, down to this level of the template."""
    value: Any = []
    for _ in range(levels - 5):
        value = [value]
    return value


def test_a_template_beyond_a_bound_is_refused_as_by_validate(
    release: Release, cluster: DynamicClient, namespace: str
) -> None:
    def refusal(body: dict[str, Any]) -> str:
        return object_refusal(cluster, body, namespace=namespace)

    await_refusal(lambda: refusal(with_pod(x=nested(33))), "32 levels")
    deep_maps: Any = 1
    for _ in range(100):
        deep_maps = {"a": deep_maps}
    for field in (nested(33), nested(100), deep_maps, "x" * 131_072, "é" * 65_536, [1] * 8300, ["[]"] * 400_000):
        body = with_pod(x=field)
        expected = exceeded_limit(body["spec"]["template"])
        assert expected.expected in refusal(body)
    for field in (nested(32), "x" * 120_000, [1] * 8000, "," * 8000, '"}]{[\\' * 5000):
        assert refusal(with_pod(x=field)) == ""
    assert refusal(JOB) == ""


def test_a_job_that_cannot_start_is_refused_as_by_validate(
    release: Release, cluster: DynamicClient, namespace: str
) -> None:
    container = {"name": "train", "image": "x:1"}
    reserved = {**container, "env": [{"name": "A", "value": "1"}, {"name": "WATTLOOP_SEED", "value": "1"}]}

    def refusal(body: dict[str, Any]) -> str:
        return object_refusal(cluster, body, namespace=namespace)

    await_refusal(lambda: refusal(with_pod(restartPolicy="Always")), "Never or OnFailure")
    for body, named in (
        (with_pod(containers=[]), "containers"),
        (with_pod(containers="train"), "containers"),
        (with_pod(restartPolicy="Always"), "restartPolicy: found"),
        (with_pod(containers=[container, reserved]), "begins with WATTLOOP_"),
        (job(trainingContainers=["train", "other"]), "spec.trainingContainers: found other"),
    ):
        spec = body["spec"]
        wrong = wrong_type(spec["template"]) or wrong_job(spec["template"], spec.get("trainingContainers"))
        assert wrong is not None
        assert named in refusal(body)
        assert named.partition(":")[0] in str(wrong) or named == "begins with WATTLOOP_"
    # A variable of a wrong type is named by the condition Ready. A workload of another kind is that of its controller.
    assert refusal(with_pod(containers=[{**container, "env": "A=1"}])) == ""
    other = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": []}}
    assert refusal(job(other, trainingContainers=["train"])) == ""
