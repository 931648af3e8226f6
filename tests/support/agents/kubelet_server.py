"""A kubelet's pod-resources API, served by the real gRPC library from the real protobuf messages."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

TEXT, INT64, MESSAGE = 9, 3, 11
# The messages of k8s.io/kubelet/pkg/apis/podresources/v1/api.proto, with fields that the agent passes over.
MESSAGES: dict[str, list[tuple[str, int, int, str, bool]]] = {
    "NUMANode": [("ID", 1, INT64, "", False)],
    "TopologyInfo": [("nodes", 1, MESSAGE, "NUMANode", True)],
    "ContainerDevices": [
        ("resource_name", 1, TEXT, "", False),
        ("device_ids", 2, TEXT, "", True),
        ("topology", 3, MESSAGE, "TopologyInfo", False),
    ],
    "ContainerResources": [
        ("name", 1, TEXT, "", False),
        ("devices", 2, MESSAGE, "ContainerDevices", True),
        ("cpu_ids", 3, INT64, "", True),
        ("dynamic_resources", 5, MESSAGE, "DynamicResource", True),
    ],
    "DynamicResource": [("claim_name", 2, TEXT, "", False)],
    "PodResources": [
        ("name", 1, TEXT, "", False),
        ("namespace", 2, TEXT, "", False),
        ("containers", 3, MESSAGE, "ContainerResources", True),
    ],
    "ListPodResourcesResponse": [("pod_resources", 1, MESSAGE, "PodResources", True)],
}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="podresources.proto", package="v1", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind, type_name, repeated in fields:
            message.field.add(
                name=field_name,
                number=number,
                type=kind,
                type_name=f".v1.{type_name}" if type_name else None,
                label=3 if repeated else 1,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1.{name}")) for name in MESSAGES}


CLASSES = _classes()


def listing(
    pods: Mapping[tuple[str, str], Sequence[str]],
    resource: str = "rdma/card",
    claims: Sequence[str] = (),
    device: str = "card-1",
) -> bytes:
    """The encoded answer for pods by (namespace, name), each with its device ids, one of a resource, and claims."""
    answer = CLASSES["ListPodResourcesResponse"]()
    for (namespace, name), ids in pods.items():
        pod = answer.pod_resources.add(name=name, namespace=namespace)
        container = pod.containers.add(name="main", cpu_ids=[1, 2, 300])
        devices = container.devices.add(resource_name="nvidia.com/gpu", device_ids=ids)
        devices.topology.nodes.add(ID=1)
        container.devices.add(resource_name=resource, device_ids=[device])
        for claim in claims:
            container.dynamic_resources.add(claim_name=claim)
    encoded: bytes = answer.SerializeToString()
    return encoded


@dataclass
class KubeletServer:
    """The kubelet's answers."""

    pods: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    resource: str = "rdma/card"
    device: str = "card-1"
    claims: tuple[str, ...] = ()
    calls: int = 0
    fails: bool = False

    def answer(self, request: bytes, context: Any) -> bytes:
        assert request == b""
        self.calls += 1
        if self.fails:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests")
        return listing(self.pods, self.resource, self.claims, self.device)


@contextmanager
def serving(path: Path) -> Iterator[KubeletServer]:
    """Serve at this path for the duration of a block."""
    kubelet = KubeletServer()
    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(kubelet.answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler}),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield kubelet
    finally:
        server.stop(None).wait()
