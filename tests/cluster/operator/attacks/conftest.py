"""The namespace of an attacker, beside the victim's."""

from collections.abc import Iterator

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from support.control_plane.commands import ClusterCommand
from support.control_plane.control_plane import ControlPlane
from support.control_plane.fixtures import Send
from support.control_plane.objects import SERVICE_ACCOUNT
from support.control_plane.waiting import wait_until


@pytest.fixture
def other(
    kubectl: ClusterCommand, cluster: DynamicClient, control_plane: ControlPlane, namespace: str
) -> Iterator[str]:
    """The attacker's namespace."""
    name = f"{namespace}-hostile"
    kubectl("create", "namespace", name)
    wait_until(cluster, SERVICE_ACCOUNT, bool, "a service account", namespace=name)
    yield name
    for resource in ("wattloop.dev/recurringtrainingjobs", "jobs", "pods"):
        control_plane.remove_objects(resource, name)
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def send(admin: client.ApiClient) -> Send:
    """Sends a text that no client parses, and returns the answer."""

    def request(method: str, path: str, content_type: str, body: bytes) -> bytes:
        pool, host = admin.rest_client.pool_manager, admin.configuration.host
        answer = pool.request(method, host + path, body=body, headers={"Content-Type": content_type})
        assert answer.status in {200, 201}, answer.data[:1000]
        return bytes(answer.data)

    return request
