"""The chart's policies admit the operator's pods, with the agent's socket and a report token."""

from kubernetes import client
from kubernetes.dynamic import DynamicClient

from support.chart.admission import await_refusal, pod_refusal
from support.control_plane.commands import ClusterCommand
from support.control_plane.fixtures import MakeJob, Operators
from support.control_plane.kubelet import Kubelet
from support.control_plane.objects import JOB
from support.control_plane.waiting import Object, wait_until

LABELS = ("pod-security.kubernetes.io/enforce=privileged", "wattloop.dev/agent-socket=baseline")
PRIVILEGED = {"name": "x", "image": "x:1", "securityContext": {"privileged": True}}


def test_a_training_with_the_agents_socket_is_admitted_in_a_labelled_namespace(
    operators: Operators,
    make_job: MakeJob,
    kubectl: ClusterCommand,
    cluster: DynamicClient,
    core: client.CoreV1Api,
    kubelet: Kubelet,
    namespace: str,
) -> None:
    kubectl("label", "namespace", namespace, "--overwrite", *LABELS)
    privileged = {"metadata": {"name": "privileged"}, "spec": {"containers": [PRIVILEGED]}}
    await_refusal(lambda: pod_refusal(core, namespace, privileged), "privileged containers")
    make_job()
    operators("--agent-socket-folder=/run/wattloop")()

    def first(jobs: list[Object]) -> str | None:
        return str(jobs[0]["metadata"]["name"]) if jobs else None

    name = wait_until(cluster, JOB, first, f"the Job of a recurrence in {namespace}", namespace=namespace)
    (pod,) = kubelet.pods_of_job(name, namespace)
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["wattloop-agent"]["hostPath"]["path"] == "/run/wattloop"
    (token, *_) = volumes["wattloop-reporting"]["projected"]["sources"]
    assert token["serviceAccountToken"]["audience"] == "wattloop.dev/report"
