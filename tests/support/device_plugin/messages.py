"""The messages of the kubelet's device plugin API, k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"

BOOL, TEXT, MESSAGE = 8, 9, 11
_ONE, _MANY = 1, 3
_FIELDS: dict[str, list[tuple[str, int, int, str, int]]] = {
    "Empty": [],
    "DevicePluginOptions": [
        ("pre_start_required", 1, BOOL, "", _ONE),
        ("get_preferred_allocation_available", 2, BOOL, "", _ONE),
    ],
    "RegisterRequest": [
        ("version", 1, TEXT, "", _ONE),
        ("endpoint", 2, TEXT, "", _ONE),
        ("resource_name", 3, TEXT, "", _ONE),
        ("options", 4, MESSAGE, "DevicePluginOptions", _ONE),
    ],
    "Device": [("ID", 1, TEXT, "", _ONE), ("health", 2, TEXT, "", _ONE)],
    "ListAndWatchResponse": [("devices", 1, MESSAGE, "Device", _MANY)],
    "ContainerAllocateRequest": [("devices_ids", 1, TEXT, "", _MANY)],
    "AllocateRequest": [("container_requests", 1, MESSAGE, "ContainerAllocateRequest", _MANY)],
    "Mount": [
        ("container_path", 1, TEXT, "", _ONE),
        ("host_path", 2, TEXT, "", _ONE),
        ("read_only", 3, BOOL, "", _ONE),
    ],
    "ContainerAllocateResponse": [
        ("envs", 1, MESSAGE, "ContainerAllocateResponse.EnvsEntry", _MANY),
        ("mounts", 2, MESSAGE, "Mount", _MANY),
    ],
    "AllocateResponse": [("container_responses", 1, MESSAGE, "ContainerAllocateResponse", _MANY)],
}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="deviceplugin.proto", package=VERSION, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind, of, label in fields:
            message.field.add(
                name=field, number=number, type=kind, type_name=f".{VERSION}.{of}" if of else None, label=label
            )
        if name == "ContainerAllocateResponse":
            # The protobuf type map<string, string>.
            entry = message.nested_type.add(name="EnvsEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
            entry.field.add(name="key", number=1, type=TEXT, label=_ONE)
            entry.field.add(name="value", number=2, type=TEXT, label=_ONE)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{VERSION}.{name}")) for name in _FIELDS}


_FOUND = _classes()
Empty = _FOUND["Empty"]
DevicePluginOptions = _FOUND["DevicePluginOptions"]
RegisterRequest = _FOUND["RegisterRequest"]
ListAndWatchResponse = _FOUND["ListAndWatchResponse"]
AllocateRequest = _FOUND["AllocateRequest"]
AllocateResponse = _FOUND["AllocateResponse"]
