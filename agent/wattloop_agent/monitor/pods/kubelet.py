"""Reads from the kubelet of this node which pod has which devices, which GPUs these are, and which uid the pod has.

Its pod-resources API (v1) names pods, not uids. The join needs no token and no API server: the
kubelet keeps each pod's logs in a folder ``<namespace>_<name>_<uid>``. Of the protobuf wire format
(https://protobuf.dev/programming-guides/encoding), only what these answers need is decoded.

The grpc library would more than double the monitor's memory for the one unary call a second that it makes, by h2
(https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).
"""

import re
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import h2.exceptions

ANSWER_LIMIT_BYTES = 16 * 1024 * 1024


class GrpcCallError(Exception):
    """The call was not answered, or with a status other than OK; the message says which."""


def unary_call(path: Path, method: str, request: bytes, timeout_seconds: float) -> bytes:
    """Call a method, ``/package.Service/Method``, with an encoded message, and return its answer's message.

    Raises:
        GrpcCallError: It was not answered in time, or with an error.
    """
    deadline = time.monotonic() + timeout_seconds
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_seconds)
            connection.connect(str(path))
            return _Call(connection, deadline).run(method, request)
    except (OSError, h2.exceptions.H2Error, ValueError) as error:
        raise GrpcCallError(f"{path}: {method}: {error}") from error


class _Call:
    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._socket = connection
        self._deadline = deadline
        self._http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self._answer = bytearray()
        self._status: dict[str, str] = {}
        self._ended = False

    def run(self, method: str, request: bytes) -> bytes:
        self._http.initiate_connection()
        stream = self._http.get_next_available_stream_id()
        self._http.send_headers(
            stream,
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", method),
                (":authority", "localhost"),
                ("content-type", "application/grpc"),
                ("te", "trailers"),
            ],
        )
        self._http.send_data(stream, struct.pack(">?I", False, len(request)) + request, end_stream=True)
        while not self._ended:
            self._socket.sendall(self._http.data_to_send())
            self._take(self._received())
        return self._message()

    def _received(self) -> bytes:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left)
        received = self._socket.recv(65536)
        if not received:
            raise ConnectionResetError("it closed the connection")
        return received

    def _take(self, received: bytes) -> None:
        for event in self._http.receive_data(received):
            if isinstance(event, h2.events.DataReceived):
                self._answer += event.data
                if len(self._answer) > ANSWER_LIMIT_BYTES:
                    raise ValueError(f"the answer has more than {ANSWER_LIMIT_BYTES} bytes")
                self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
                self._status.update({str(name): str(value) for name, value in event.headers})
            elif isinstance(event, h2.events.StreamEnded):
                self._ended = True
            elif isinstance(event, (h2.events.StreamReset, h2.events.ConnectionTerminated)):
                raise ConnectionResetError(f"it ended the call with code {event.error_code}")

    def _message(self) -> bytes:
        status = self._status.get("grpc-status")
        if status != "0":
            raise ValueError(f"status {status}: {self._status.get('grpc-message', 'no message')}")
        if len(self._answer) < 5:
            raise ValueError("the answer has no message")
        compressed, size = struct.unpack(">?I", self._answer[:5])
        if compressed or len(self._answer) != 5 + size:
            raise ValueError("the answer has an unrequested encoding")
        return bytes(self._answer[5:])


LIST = "/v1.PodResourcesLister/List"
# Fields of the messages of k8s.io/kubelet/pkg/apis/podresources/v1/api.proto.
_POD_RESOURCES = 1
_POD_NAME, _POD_NAMESPACE, _POD_CONTAINERS = 1, 2, 3
_CONTAINER_NAME, _CONTAINER_DEVICES, _CONTAINER_CLAIMS = 1, 2, 5
_RESOURCE_NAME, _DEVICE_IDS = 1, 2
_VENDOR = "nvidia.com/"
# Adapters of RDMA networks, which pods with GPUs often have, and which may be named after their GPU.
_NO_GPUS = "rdma/"
# Names of resources and ids of devices of others that may be GPUs, as amd.com/gpu, gpu.intel.com/i915,
# volcano.sh/vgpu-number and tencent.com/vcuda-core; network adapters, /dev/kvm and /dev/fuse have none of these.
_MAY_BE_GPU = re.compile("gpu|cuda|mig-|nvidia", re.IGNORECASE)


@dataclass(frozen=True)
class PodName:
    """A pod, as the API names it."""

    namespace: str
    name: str


@dataclass(frozen=True)
class PodDevices:
    """The devices of the pods of this node.

    Attributes:
        ids: By pod, by container, the ids of the NVIDIA devices.
        has_others: Whether a container has a resource claim or a device of another resource that may be a GPU.
    """

    ids: dict[PodName, dict[str, frozenset[str]]]
    has_others: bool


def devices_by_pod(path: Path, timeout_seconds: float) -> PodDevices:
    """The devices assigned to each container of each pod of this node, by the kubelet's socket.

    Raises:
        GrpcCallError: The kubelet does not answer.
        ValueError: Its answer is no protobuf message.
    """
    # Of two pods of one name, the first of which has ended, the last counts.
    pods: dict[PodName, list[tuple[str, frozenset[str], bool]]] = {}
    for number, pod in fields(unary_call(path, LIST, b"", timeout_seconds)):
        if number != _POD_RESOURCES:
            continue
        content = list(fields(pod))
        name, namespace = (dict(content).get(each, b"").decode() for each in (_POD_NAME, _POD_NAMESPACE))
        pods[PodName(namespace, name)] = [_container(value) for number, value in content if number == _POD_CONTAINERS]
    ids = {pod: {name: devices for name, devices, _ in containers} for pod, containers in pods.items()}
    return PodDevices(ids, any(others for containers in pods.values() for _, _, others in containers))


def _container(message: bytes) -> tuple[str, frozenset[str], bool]:
    """Name, ids of NVIDIA devices, and whether it has a claim or another device that may be a GPU."""
    content = list(fields(message))
    ids, has_others = set[str](), any(number == _CONTAINER_CLAIMS for number, _ in content)
    for number, value in content:
        if number == _CONTAINER_DEVICES:
            devices = list(fields(value))
            resource = dict(devices).get(_RESOURCE_NAME, b"").decode()
            listed = {device.decode() for field, device in devices if field == _DEVICE_IDS}
            if resource.startswith(_VENDOR):
                ids |= listed
            elif listed and not resource.startswith(_NO_GPUS):
                has_others = has_others or any(map(_MAY_BE_GPU.search, (resource, *listed)))
    return dict(content).get(_CONTAINER_NAME, b"").decode(), frozenset(ids), has_others


def names_by_uid(log_folder: Path) -> dict[str, PodName]:
    """The pods that have a log folder on this node, by uid: running ones, and some that have ended.

    Raises:
        OSError: The folder can't be read.
    """
    # Namespaces and pod names contain no underscore.
    parts = [folder.name.split("_") for folder in log_folder.iterdir()]
    return {part[2]: PodName(part[0], part[1]) for part in parts if len(part) == 3}


def has_container_log(log_folder: Path, uid: str, pod: PodName, since: float) -> bool:
    """Whether a container of the pod has written its log, which its runtime makes at its start, since then (an epoch).

    Raises:
        OSError: A log can't be read.
    """
    logs = (log_folder / f"{pod.namespace}_{pod.name}_{uid}").glob("*/*.log")
    # Some runtimes make a link.
    return any(log.lstat().st_mtime >= since for log in logs)


_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The (number, content) of each length-delimited field of a message; others are skipped.

    Raises:
        ValueError: It is not a protobuf message.

    Example:
        >>> list(fields(bytes([0x0A, 2]) + b"ab" + bytes([0x10, 7])))
        [(1, b'ab')]
    """
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            _, position = _varint(message, position)
            continue
        if kind == _LENGTH:
            size, position = _varint(message, position)
        elif kind in {_EIGHT_BYTES, _FOUR_BYTES}:
            size = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"unknown wire type {kind}")
        if position + size > len(message):
            raise ValueError("a field is longer than its message")
        if kind == _LENGTH:
            yield tag >> 3, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            raise ValueError("a number is truncated")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a number has more than ten bytes")


_UUID = r"GPU-[0-9a-fA-F-]{36}"
_FULL_GPU = re.compile(_UUID)
_REPLICA = re.compile(rf"({_UUID})::\d+")
_MIG = re.compile(r"(MIG-[0-9a-fA-F-]{36})(?:::\d+)?")
# Before driver 470 a MIG device was named after its GPU, its GPU instance and its compute instance.
_OLD_MIG = re.compile(rf"MIG-({_UUID})/\d+/\d+(?:::\d+)?")
_NODE = re.compile(r"nvidia\d+")
_NODE_PART = re.compile(r"(nvidia\d+)/(?:gi|vgpu)\d+(?:/.*)?")


@dataclass(frozen=True)
class PodGpus:
    """The GPUs of one pod.

    Attributes:
        exclusive: Uuids of those that only it uses.
        shared: Uuids of those that others use too, by time slicing or MIG: it may not set their limit.
        unknown: Ids that name no device of this machine, or have an unknown form.
    """

    exclusive: frozenset[str]
    shared: frozenset[str]
    unknown: frozenset[str]


def needs_names(ids: Iterable[str]) -> bool:
    """Whether one of these ids names no GPU uuid, so that `gpus_of` needs `uuid_by_device`."""
    return not all(_FULL_GPU.fullmatch(device) or _REPLICA.fullmatch(device) for device in ids)


def gpus_of(ids: Iterable[str], uuid_by_device: Mapping[str, str]) -> PodGpus:
    """The GPUs that a pod's device ids name.

    Args:
        ids: As the kubelet lists them: ``GPU-…``, ``GPU-…::replica``, ``MIG-…``,
            ``MIG-…::replica``, ``nvidia0``, ``nvidia0/gi1``.
        uuid_by_device: Each GPU's uuid, by the name of its device node (``nvidia0``) and by the
            uuids of its MIG devices.

    Example:
        >>> uuid = "GPU-00000000-0000-0000-0000-000000000001"
        >>> sorted(gpus_of([uuid + "::3"], {}).shared) == [uuid]
        True
    """
    exclusive, shared, unknown = set(), set(), set()
    for device in ids:
        if _FULL_GPU.fullmatch(device):
            exclusive.add(device)
        elif _NODE.fullmatch(device) and device in uuid_by_device:
            exclusive.add(uuid_by_device[device])
        elif part := _REPLICA.fullmatch(device) or _OLD_MIG.fullmatch(device):
            shared.add(part.group(1))
        elif (part := _MIG.fullmatch(device) or _NODE_PART.fullmatch(device)) and part.group(1) in uuid_by_device:
            shared.add(uuid_by_device[part.group(1)])
        else:
            unknown.add(device)
    return PodGpus(frozenset(exclusive - shared), frozenset(shared), frozenset(unknown))
