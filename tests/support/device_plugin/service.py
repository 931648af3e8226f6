"""The side of the API that the kubelet calls: which devices there are, and what comes with them."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from support.device_plugin.devices import Allocation, Device
from support.device_plugin.messages import (
    HEALTHY,
    UNHEALTHY,
    VERSION,
    AllocateRequest,
    AllocateResponse,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
)

# How often a stream looks whether the kubelet at its other end is gone.
_LOOK_SECONDS = 1.0


class Service:
    """Answers the kubelet.

    Args:
        allocate: The content of a container with devices of these ids.
    """

    def __init__(self, allocate: Callable[[Iterable[str]], Allocation]) -> None:
        self._allocate = allocate
        self._changed = threading.Condition()
        self._devices: tuple[Device, ...] = ()
        self._ended = False

    def offer(self, devices: tuple[Device, ...]) -> None:
        """Replaces the devices; watching kubelets get a message if they differ."""
        with self._changed:
            if devices != self._devices:
                self._devices = devices
                self._changed.notify_all()

    def end(self) -> None:
        """Ends all streams."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def serve(self, socket: Path) -> grpc.Server:
        """Serves at a unix socket, replacing any file at that path."""
        socket.unlink(missing_ok=True)
        server = grpc.server(ThreadPoolExecutor(8))
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(f"{VERSION}.DevicePlugin", self._calls()),)
        )
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        return server

    def _calls(self) -> dict[str, grpc.RpcMethodHandler]:
        return {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                lambda _request, _context: DevicePluginOptions(),
                Empty.FromString,
                DevicePluginOptions.SerializeToString,
            ),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self._list_and_watch, Empty.FromString, ListAndWatchResponse.SerializeToString
            ),
            "Allocate": grpc.unary_unary_rpc_method_handler(
                self._answer_allocate, AllocateRequest.FromString, AllocateResponse.SerializeToString
            ),
        }

    def _list_and_watch(self, _request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        message: tuple[Device, ...] | None = None
        while context.is_active():
            with self._changed:
                if self._devices == message and not self._ended:
                    self._changed.wait(_LOOK_SECONDS)
                if self._ended:
                    return
                devices = self._devices
            if devices != message:
                message = devices
                answer = ListAndWatchResponse()
                for device in devices:
                    answer.devices.add(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY)
                yield answer

    def _answer_allocate(self, request: Any, context: grpc.ServicerContext) -> Any:
        known = {device.id for device in self._devices}
        answer = AllocateResponse()
        for container in request.container_requests:
            ids = list(container.devices_ids)
            if unknown := sorted(set(ids) - known):
                context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"there is no device {', '.join(unknown)}; there are {sorted(known)}",
                )
            given = self._allocate(ids)
            response = answer.container_responses.add(envs=given.environment)
            for mount in given.mounts:
                response.mounts.add(
                    host_path=mount.host_path, container_path=mount.container_path, read_only=mount.read_only
                )
        return answer
