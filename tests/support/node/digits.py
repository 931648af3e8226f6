"""The example training as a user runs it: the manifest of examples/digits, and runs asked for one after another."""

import copy
import json
from collections.abc import Callable
from typing import Any

import yaml
from kubernetes.dynamic import DynamicClient

from support.control_plane.chart import REPOSITORY
from support.control_plane.commands import ClusterCommand
from support.control_plane.objects import TRAINING_RECURRENCE
from support.control_plane.waiting import Object, wait_until

API_VERSION = "wattloop.dev/v1alpha1"
MANIFEST = REPOSITORY / "examples" / "digits" / "job.yaml"
ONE_RUN_SECONDS = 240.0


def digits_job(name: str = "digits", *, gpus: int = 1, **spec: Any) -> Object:
    """The manifest of the example without a schedule, with another name, GPUs of a pod, or other fields of its spec."""
    job: Object = copy.deepcopy(yaml.safe_load(MANIFEST.read_text(encoding="utf-8")))
    job["metadata"]["name"] = name
    del job["spec"]["schedule"], job["spec"]["timeZone"]
    job["spec"].update(spec)
    container_of(job)["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return job


def container_of(job: Object) -> Object:
    """The training container of a manifest."""
    container: Object = job["spec"]["template"]["spec"]["template"]["spec"]["containers"][0]
    return container


class Runs:
    """Runs of one job, as a user asks for them."""

    def __init__(self, kubectl: ClusterCommand, cluster: DynamicClient, job: str, namespace: str) -> None:
        self._kubectl = kubectl
        self._cluster = cluster
        self._job = job
        self._namespace = namespace

    def ask(self, word: str) -> None:
        """Asks for a run: a new word is a new run."""
        patch = json.dumps({"spec": {"runRequest": word}})
        self._kubectl("patch", "rtj", self._job, "--type=merge", f"--patch={patch}", namespace=self._namespace)

    def recurrences(self) -> list[Object]:
        """Its recurrences, the first one first."""
        found: list[Object] = self._kubectl.json("get", "trec", namespace=self._namespace)["items"]
        return in_order([each for each in found if each["spec"]["jobRef"]["name"] == self._job])

    def await_recurrence(self, index: int, *, timeout_seconds: float = ONE_RUN_SECONDS) -> Object:
        """Waits until the recurrence of this index has ended; returns its last attempt."""

        def ended(found: list[Object]) -> Object | None:
            attempts = [
                each
                for each in in_order(found)
                if each["spec"]["jobRef"]["name"] == self._job and each["spec"]["index"] == index
            ]
            if not attempts or not all("completionTime" in each.get("status", {}) for each in attempts):
                return None
            return attempts[-1] if self._is_over(attempts[-1]) else None

        what = f"the end of recurrence {index} of {self._job}"
        return await_recurrences(self._cluster, self._namespace, ended, what=what, timeout_seconds=timeout_seconds)

    def status(self) -> Object:
        """The job's status."""
        status: Object = self._kubectl.json("get", "rtj", self._job, namespace=self._namespace).get("status", {})
        return status

    def run(self, index: int) -> Object:
        """Asks for the run of this index and waits until it has ended."""
        self.ask(f"run-{index}")
        return self.await_recurrence(index)

    def _is_over(self, attempt: Object) -> bool:
        """Whether no other attempt follows this one."""
        if attempt["status"]["result"] == "Reached":
            return True
        job = self._kubectl.json("get", "rtj", self._job, namespace=self._namespace)
        return bool(attempt["spec"]["attempt"] >= job["spec"]["retries"])


def await_recurrences(
    cluster: DynamicClient,
    namespace: str,
    condition: Callable[[list[Object]], Object | None],
    *,
    what: str,
    timeout_seconds: float,
) -> Object:
    """Waits until a namespace's recurrences are as wanted; returns what the condition found."""
    return wait_until(
        cluster, TRAINING_RECURRENCE, condition, what, namespace=namespace, timeout_seconds=timeout_seconds
    )


def in_order(recurrences: list[Object]) -> list[Object]:
    """By index and attempt."""
    return sorted(recurrences, key=lambda each: (each["spec"]["index"], each["spec"]["attempt"]))
