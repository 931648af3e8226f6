"""Simulates the kubelet of one node: it writes the status of real Pod objects and runs no containers.

The Job controller creates and counts pods as in any cluster; the test chooses what the pods do.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import threading
from typing import Any

import urllib3
from kubernetes import client, watch
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient

from support.control_plane.objects import POD
from support.control_plane.waiting import Object, wait_until

NODE_NAME = "wattloop-test-node"
_POD_NETWORK = "198.18.77"
_NODE_ADDRESS = f"{_POD_NETWORK}.1"
_WATCH_SECONDS = 300
_WATCH_RETRY_SECONDS = 0.2
_CONFLICT = 409
_NOT_FOUND = 404


class Kubelet:
    """One node and its kubelet. Use it as a context manager; meanwhile it removes deleted pods.

    Args:
        cluster: A dynamic client with an administrator's rights.
    """

    def __init__(self, cluster: DynamicClient, node_name: str = NODE_NAME) -> None:
        self.node_name = node_name
        self._cluster = cluster
        self._core = client.CoreV1Api(cluster.client)
        self._pod_numbers = itertools.cycle(range(2, 255))
        self._terminations = _Terminations(self._core, node_name)

    def __enter__(self) -> Kubelet:
        register_node(self._core, self.node_name)
        self._terminations.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._terminations.stop()

    def pods_of_job(self, job: str, namespace: str, *, count: int = 1) -> list[Object]:
        """Wait until a Job has `count` pods that have neither ended nor been deleted; returns them."""

        def active(pods: list[Object]) -> list[Object] | None:
            found = [
                pod
                for pod in pods
                if pod["status"].get("phase") not in {"Succeeded", "Failed"}
                and "deletionTimestamp" not in pod["metadata"]
            ]
            return found if len(found) == count else None

        return wait_until(
            self._cluster,
            POD,
            active,
            f"{count} active pod(s) of the Job {namespace}/{job}",
            namespace=namespace,
            label_selector=f"batch.kubernetes.io/job-name={job}",
        )

    def run(self, pod: Object) -> Object:
        """Bind the pod to the node and start its containers; returns the pod with its address."""
        self._bind(pod)
        return self._report(pod, "Running", {"running": {"startedAt": _now()}})

    def succeed(self, pod: Object, *, message: str = "") -> Object:
        """End the pod's containers with exit code 0 and a termination message."""
        return self._end(pod, "Succeeded", exit_code=0, reason="Completed", message=message)

    def fail(self, pod: Object, *, exit_code: int = 1, reason: str = "Error", message: str = "") -> Object:
        """End the pod's containers with an exit code, a kubelet's reason and a termination message."""
        return self._end(pod, "Failed", exit_code=exit_code, reason=reason, message=message)

    def preempt(self, pod: Object) -> Object:
        """End the pod's containers as the kubelet does for a pod that the scheduler has preempted."""
        target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        self._patch(pod, {"conditions": [target | {"lastTransitionTime": _now()}]})
        return self.fail(pod, exit_code=143)

    def fail_init_container(self, pod: Object, *, exit_code: int, message: str) -> Object:
        """End the pod because its first init container ended with an exit code and a termination message."""
        self._bind(pod)
        ended = {"exitCode": exit_code, "reason": "Error", "startedAt": _now(), "finishedAt": _now()}
        (container, *_), waiting = pod["spec"]["initContainers"], {"waiting": {"reason": "PodInitializing"}}
        status = {"ready": False, "restartCount": 0, "imageID": ""}
        init = status | {"state": {"terminated": ended | {"message": message}}}
        trains = [
            status | {"name": each["name"], "image": each["image"], "state": waiting}
            for each in pod["spec"]["containers"]
        ]
        init |= {"name": container["name"], "image": container["image"]}
        return self._patch(pod, {"phase": "Failed", "initContainerStatuses": [init], "containerStatuses": trains})

    def fail_image_pull(self, pod: Object) -> Object:
        """Leave the pod pending because its image cannot be pulled."""
        self._bind(pod)
        waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
        return self._report(pod, "Pending", waiting)

    def leave_unschedulable(self, pod: Object) -> Object:
        """Leave the pod without a node, as the scheduler does if none has enough of what it requests."""
        text = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
        scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
        return self._patch(pod, {"phase": "Pending", "conditions": [scheduled | {"lastTransitionTime": _now()}]})

    def _end(self, pod: Object, phase: str, *, exit_code: int, reason: str, message: str = "") -> Object:
        self._bind(pod)
        started = pod["status"].get("startTime") or _now()
        ended = {"exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": _now()}
        ended |= {"message": message} if message else {}
        return self._report(pod, phase, {"terminated": ended})

    def _bind(self, pod: Object) -> None:
        """Bind the pod, unless it is bound."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        target = client.V1ObjectReference(api_version="v1", kind="Node", name=self.node_name)
        binding = client.V1Binding(metadata=client.V1ObjectMeta(name=name), target=target)
        try:
            self._core.create_namespaced_pod_binding(name, namespace, binding, _preload_content=False)
        except ApiException as error:
            if error.status != _CONFLICT:
                raise

    def _report(self, pod: Object, phase: str, state: dict[str, Any]) -> Object:
        """Write the pod's status, with the same `state` for each container."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        pods = self._cluster.resources.get(api_version="v1", kind="Pod")
        current = pods.get(name=name, namespace=namespace).to_dict()["status"]
        address = current.get("podIP") or f"{_POD_NETWORK}.{next(self._pod_numbers)}"
        ready = phase == "Running"
        status = {
            "phase": phase,
            "startTime": current.get("startTime") or _now(),
            "hostIP": _NODE_ADDRESS,
            "hostIPs": [{"ip": _NODE_ADDRESS}],
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [
                {"type": kind, "status": str(value), "lastTransitionTime": _now()}
                for kind, value in (("Initialized", True), ("ContainersReady", ready), ("Ready", ready))
            ],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "" if "waiting" in state else image_id(container["image"]),
                    "ready": ready,
                    "started": ready,
                    "restartCount": 0,
                    "state": state,
                }
                for container in pod["spec"]["containers"]
            ],
        }
        return self._patch(pod, status)

    def _patch(self, pod: Object, status: dict[str, Any]) -> Object:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        pods = self._cluster.resources.get(api_version="v1", kind="Pod")
        return dict(pods.status.patch(body={"status": status}, name=name, namespace=namespace).to_dict())


def image_id(image: str) -> str:
    """The id that a kubelet writes for an image: its repository and a digest, which here is that of its name."""
    return f"{image.partition(':')[0]}@sha256:{hashlib.sha256(image.encode()).hexdigest()}"


def register_node(core: client.CoreV1Api, name: str, labels: dict[str, str] | None = None) -> None:
    """Create a ready Node, unless one of this name exists."""
    node = client.V1Node(metadata=client.V1ObjectMeta(name=name, labels=labels))
    try:
        core.create_node(node)
    except ApiException as error:
        if error.status != _CONFLICT:
            raise
    # No controller removes the not-ready taint of a new node here.
    core.patch_node(name, {"spec": {"taints": None}})
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": _now()}
    addresses = [{"type": "InternalIP", "address": _NODE_ADDRESS}]
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
    status = {"conditions": [ready], "addresses": addresses, "capacity": capacity, "allocatable": capacity}
    core.patch_node_status(name, {"status": status})


class _Terminations:
    """A thread that removes the node's deleted pods, as a kubelet does when their containers have stopped."""

    def __init__(self, core: client.CoreV1Api, node_name: str) -> None:
        self._core = core
        self._node_name = node_name
        self._watch: Any = watch.Watch()  # type: ignore[no-untyped-call]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._remove_deleted_pods, name="kubelet-terminations", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for it."""
        self._stopping.set()
        self._watch.stop()
        self._thread.join()

    def _remove_deleted_pods(self) -> None:
        while not self._stopping.is_set():
            try:
                for event in self._watch.stream(
                    self._core.list_pod_for_all_namespaces,
                    field_selector=f"spec.nodeName={self._node_name}",
                    timeout_seconds=_WATCH_SECONDS,
                ):
                    if self._stopping.is_set():
                        break
                    # The client yields None for a line that the server truncated when it closed the stream.
                    if event is None or event["type"] == "DELETED":
                        continue
                    if event["object"].metadata.deletion_timestamp is not None:
                        self._remove(event["object"].metadata)
            except (urllib3.exceptions.HTTPError, ApiException):
                # Stopping ends the stream; after any other cause the stream is opened again.
                self._stopping.wait(_WATCH_RETRY_SECONDS)

    def _remove(self, metadata: client.V1ObjectMeta) -> None:
        assert metadata.name is not None
        assert metadata.namespace is not None
        # Only this pod, not a newer one of the same name.
        options = client.V1DeleteOptions(grace_period_seconds=0, preconditions=client.V1Preconditions(uid=metadata.uid))
        try:
            self._core.delete_namespaced_pod(metadata.name, metadata.namespace, body=options)
        except ApiException as error:
            if error.status not in {_NOT_FOUND, _CONFLICT}:
                raise


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
