"""The control plane of the tests is real and leaves no processes."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from kubernetes import config
from kubernetes.dynamic import DynamicClient

from support.control_plane.commands import ClusterCommand
from support.control_plane.control_plane import running_control_plane
from support.control_plane.kubelet import NODE_NAME, Kubelet
from support.control_plane.memory_cgroup import memory_cgroup, missing_requirement
from support.control_plane.objects import SERVICE_ACCOUNT
from support.control_plane.waiting import WaitTimeoutError, wait_until


def job_manifest(name: str = "train", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "example.invalid/train", "command": ["train"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": template, **spec},
    }


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


def test_the_error_of_a_timeout_names_the_condition_and_the_objects(cluster: DynamicClient, namespace: str) -> None:
    with pytest.raises(
        WaitTimeoutError, match=r"timed out after \d+ s waiting for the impossible(.|\n)*'name': 'default'"
    ):
        wait_until(cluster, SERVICE_ACCOUNT, lambda _: False, "the impossible", namespace=namespace, timeout_seconds=1)


def test_the_scheduler_binds_a_pod_and_stopping_ends_every_part(programs: Mapping[str, Path], tmp_path: Path) -> None:
    with (
        running_control_plane(programs, tmp_path) as plane,
        config.new_client_from_config(str(plane.admin_kubeconfig)) as admin,
    ):
        cluster = DynamicClient(admin, cache_file=str(tmp_path / "discovery.json"))
        plane.start_scheduler()
        # A new control plane makes the namespace, and then its account, a moment after it is ready.
        wait_until(
            cluster, SERVICE_ACCOUNT, bool, "the default service account of the default namespace", namespace="default"
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
