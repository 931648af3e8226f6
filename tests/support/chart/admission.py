"""Asking the API server whether it would admit an object, and waiting until its policies are in force."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from kubernetes import client
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient

from support.control_plane.waiting import LONGEST_WAIT_SECONDS

REFUSED = frozenset({403, 422})


def refusal(ask: Callable[[], object]) -> str:
    """The message with which the server refuses a request; empty where it accepts it."""
    try:
        ask()
    except ApiException as error:
        if error.status not in REFUSED:
            raise
        return str(json.loads(error.body or "{}")["message"])
    return ""


def pod_refusal(core: client.CoreV1Api, namespace: str, pod: Mapping[str, Any]) -> str:
    """Why the server would not create a pod; nothing is kept."""
    return refusal(lambda: core.create_namespaced_pod(namespace, pod, dry_run="All"))


def object_refusal(cluster: DynamicClient, body: Mapping[str, Any], *, namespace: str) -> str:
    """Why the server would not create an object of any kind; nothing is kept."""
    kind = cluster.resources.get(api_version=body["apiVersion"], kind=body["kind"])
    return refusal(lambda: cluster.create(kind, body=body, namespace=namespace, query_params=[("dryRun", "All")]))


def await_refusal(ask: Callable[[], str], expected: str) -> None:
    """Wait until a request is refused with certain words: a new policy takes the server a moment."""
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while expected not in (message := ask()):
        assert time.monotonic() < deadline, f"not refused with {expected!r}: {message or 'accepted'}"
        time.sleep(0.1)
