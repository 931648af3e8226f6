"""The control plane of the tests is real and leaves no processes."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.dynamic import DynamicClient

from support.binaries.build import BINARIES
from support.control_plane.commands import ClusterCommand, CommandError
from support.control_plane.control_plane import running_control_plane
from support.control_plane.kubelet import NODE_NAME, Kubelet
from support.control_plane.memory_cgroup import memory_cgroup, missing_requirement
from support.control_plane.training import TokenOfPod
from support.control_plane.waiting import LONGEST_WAIT_SECONDS, Object, WaitTimeoutError, wait_until


def job_manifest(name: str = "train", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "example.invalid/train", "command": ["train"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": template, **spec},
    }


def job_condition(cluster: DynamicClient, namespace: str, condition: str) -> dict[str, Any]:
    def found(jobs: list[Object]) -> dict[str, Any] | None:
        conditions = [item for job in jobs for item in job["status"].get("conditions", [])]
        return next((item for item in conditions if item["type"] == condition), None)

    return wait_until(
        cluster,
        api_version="batch/v1",
        kind="Job",
        namespace=namespace,
        condition=found,
        what=f"a Job with the condition {condition}",
    )


def all_end_within(process_ids: Iterable[int], seconds: float) -> bool:
    for pid in process_ids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ended, _, _ = select.select([descriptor], [], [], seconds)
        finally:
            os.close(descriptor)
        if not ended:
            return False
    return True


def test_the_server_and_kubectl_have_the_pinned_version(kubectl: ClusterCommand) -> None:
    versions = kubectl.json("version")
    pinned = BINARIES["kube-apiserver"].module.version
    assert versions["serverVersion"]["gitVersion"] == pinned
    assert versions["clientVersion"]["gitVersion"] == pinned


def test_a_service_account_without_a_role_is_rejected(
    kubectl: ClusterCommand, namespace: str, service_account_kubeconfig: Callable[[str, str], Path]
) -> None:
    someone = kubectl.as_user(service_account_kubeconfig(namespace, "default"))
    with pytest.raises(CommandError, match="pods is forbidden"):
        someone("get", "pods", namespace=namespace)


def test_a_role_grants_only_its_rights(
    kubectl: ClusterCommand, namespace: str, service_account_kubeconfig: Callable[[str, str], Path]
) -> None:
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods", namespace=namespace)
    kubectl(
        "create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:default", namespace=namespace
    )
    someone = kubectl.as_user(service_account_kubeconfig(namespace, "default"))
    # A role takes effect after a moment.
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while True:
        try:
            assert someone.json("get", "pods", namespace=namespace)["items"] == []
        except CommandError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            break
    with pytest.raises(CommandError, match="forbidden"):
        someone("delete", "pod", "any", namespace=namespace)


def test_the_server_rejects_an_invalid_job(kubectl: ClusterCommand, namespace: str) -> None:
    with pytest.raises(CommandError, match=r"spec\.template\.spec\.containers"):
        kubectl.apply(job_manifest(template={"spec": {"restartPolicy": "Never"}}), namespace=namespace)


@pytest.mark.parametrize(("count", "restart"), [(1, "Never"), (3, "OnFailure")])
def test_a_job_succeeds_when_its_pods_succeed(
    count: int, restart: str, kubectl: ClusterCommand, kubelet: Kubelet, cluster: DynamicClient, namespace: str
) -> None:
    manifest = job_manifest(completions=count, parallelism=count)
    manifest["spec"]["template"]["spec"]["restartPolicy"] = restart
    kubectl.apply(manifest, namespace=namespace)
    for pod in kubelet.pods_of_job("train", namespace, count=count):
        running = kubelet.run(pod)
        assert running["spec"]["nodeName"] == NODE_NAME
        assert running["status"]["podIP"]
        kubelet.succeed(running)
    assert job_condition(cluster, namespace, "Complete")["status"] == "True"


@pytest.mark.parametrize(
    ("end", "exit_code", "reason"),
    [
        (lambda kubelet, pod: kubelet.fail(pod, exit_code=3), 3, "Error"),
        (lambda kubelet, pod: kubelet.run_out_of_memory(pod), 137, "OOMKilled"),
    ],
)
def test_a_job_fails_when_its_pod_fails(
    end: Callable[[Kubelet, Object], Object],
    exit_code: int,
    reason: str,
    kubectl: ClusterCommand,
    kubelet: Kubelet,
    cluster: DynamicClient,
    namespace: str,
) -> None:
    kubectl.apply(job_manifest(), namespace=namespace)
    (pod,) = kubelet.pods_of_job("train", namespace)
    ended = end(kubelet, kubelet.run(pod))
    state = ended["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (exit_code, reason)
    assert job_condition(cluster, namespace, "Failed")["reason"] == "BackoffLimitExceeded"


def test_a_pod_whose_image_is_missing_stays_pending(kubectl: ClusterCommand, kubelet: Kubelet, namespace: str) -> None:
    kubectl.apply(job_manifest(), namespace=namespace)
    (pod,) = kubelet.pods_of_job("train", namespace)
    status = kubelet.fail_image_pull(pod)["status"]
    assert status["phase"] == "Pending"
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"


def test_deleting_a_job_deletes_its_running_pod(
    kubectl: ClusterCommand, kubelet: Kubelet, cluster: DynamicClient, namespace: str
) -> None:
    kubectl.apply(job_manifest(), namespace=namespace)
    (pod,) = kubelet.pods_of_job("train", namespace)
    kubelet.run(pod)
    kubectl("delete", "job", "train", "--wait=false", namespace=namespace)
    deleted = wait_until(
        cluster,
        api_version="v1",
        kind="Pod",
        namespace=namespace,
        condition=lambda pods: pods == [],
        what="the Job's pod to be deleted",
    )
    assert deleted


def test_a_pods_token_names_the_pod_and_is_valid_for_its_audience_only(
    kubectl: ClusterCommand,
    kubelet: Kubelet,
    admin: client.ApiClient,
    namespace: str,
    token_of_pod: TokenOfPod,
) -> None:
    kubectl.apply(job_manifest(), namespace=namespace)
    (pod,) = kubelet.pods_of_job("train", namespace)
    token = token_of_pod(kubelet.run(pod), "wattloop.example")

    def review(audience: str) -> client.V1TokenReviewStatus:
        spec = client.V1TokenReviewSpec(token=token, audiences=[audience])
        return client.AuthenticationV1Api(admin).create_token_review(client.V1TokenReview(spec=spec)).status

    accepted = review("wattloop.example")
    assert accepted.authenticated
    assert accepted.user.username == f"system:serviceaccount:{namespace}:default"
    assert accepted.user.extra["authentication.kubernetes.io/pod-name"] == [pod["metadata"]["name"]]
    assert accepted.user.extra["authentication.kubernetes.io/pod-uid"] == [pod["metadata"]["uid"]]
    assert not review("someone.else.example").authenticated


def test_the_error_of_a_timeout_names_the_condition_and_the_objects(cluster: DynamicClient, namespace: str) -> None:
    with pytest.raises(
        WaitTimeoutError, match=r"timed out after \d+ s waiting for the impossible(.|\n)*'name': 'default'"
    ):
        wait_until(
            cluster,
            api_version="v1",
            kind="ServiceAccount",
            namespace=namespace,
            condition=lambda _: False,
            what="the impossible",
            timeout_seconds=1,
        )


def test_the_scheduler_binds_a_pod_and_stopping_ends_every_part(programs: Mapping[str, Path], tmp_path: Path) -> None:
    with (
        running_control_plane(programs, tmp_path) as plane,
        config.new_client_from_config(str(plane.admin_kubeconfig)) as admin,
    ):
        cluster = DynamicClient(admin, cache_file=str(tmp_path / "discovery.json"))
        plane.start_scheduler()
        # A new control plane makes the namespace, and then its account, a moment after it is ready.
        wait_until(
            cluster,
            api_version="v1",
            kind="ServiceAccount",
            namespace="default",
            condition=bool,
            what="the default service account of the default namespace",
        )
        kubectl = ClusterCommand(programs["kubectl"], plane.admin_kubeconfig, tmp_path)
        with Kubelet(cluster) as kubelet:
            kubectl.apply(job_manifest(), namespace="default")
            (pod,) = kubelet.pods_of_job("train", "default")
            bound = f"--for=jsonpath={{.spec.nodeName}}={NODE_NAME}"
            kubectl("wait", f"pod/{pod['metadata']['name']}", bound, "--timeout=150s")
            assert kubelet.run(pod)["status"]["phase"] == "Running"
        process_ids = plane.process_ids
        assert set(process_ids) == {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
        assert not all_end_within(process_ids.values(), 0)
    assert all_end_within(process_ids.values(), 0)


def test_no_process_outlives_killed_tests(programs: Mapping[str, Path]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "support.control_plane"],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
    ) as killed:
        assert killed.stdout is not None
        process_ids = json.loads(killed.stdout.readline())["processes"].values()
        assert not all_end_within(process_ids, 0)
        killed.send_signal(signal.SIGKILL)
    assert all_end_within(process_ids, 60)


def test_a_process_beyond_the_limit_of_its_memory_cgroup_is_killed_and_the_cgroup_leaves() -> None:
    missing = missing_requirement()
    if missing is not None:
        pytest.skip(missing)
    with memory_cgroup(64 * 1024**2) as made:
        for size, ends_with in ((16 * 1024**2, 0), (128 * 1024**2, -signal.SIGKILL)):
            program = [sys.executable, "-c", f"bytearray({size}).count(1)"]
            assert subprocess.run(made.command(program), check=False).returncode == ends_with
        assert made.kills == 1
        remains = subprocess.Popen(made.command(["sleep", "600"]))
        while not made.process_ids():
            assert remains.poll() is None
    assert remains.wait() == -signal.SIGKILL
    with pytest.raises(FileNotFoundError):
        made.process_ids()
