"""The kubelet's side of the device plugin API, as far as a plugin sees it: it takes registrations and calls back."""

import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from support.device_plugin.messages import (
    VERSION,
    AllocateRequest,
    AllocateResponse,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    RegisterRequest,
)

_TIMEOUT_SECONDS = 100.0


class Registered:
    """A plugin that has registered, as the kubelet calls it."""

    def __init__(self, channel: grpc.Channel, request: Any) -> None:
        self.request = request
        self._channel = channel
        self._watched: Iterator[Any] | None = None

    def options(self) -> Any:
        """Calls GetDevicePluginOptions."""
        return self._unary("GetDevicePluginOptions", DevicePluginOptions)(Empty(), timeout=_TIMEOUT_SECONDS)

    def next_devices(self) -> dict[str, str]:
        """The health of each device, as the next message of the one ListAndWatch says."""
        if self._watched is None:
            watch = self._channel.unary_stream(
                f"/{VERSION}.DevicePlugin/ListAndWatch", Empty.SerializeToString, ListAndWatchResponse.FromString
            )
            self._watched = watch(Empty(), timeout=_TIMEOUT_SECONDS)
        return {device.ID: device.health for device in next(self._watched).devices}

    def allocate(self, *containers: Sequence[str]) -> Any:
        """Calls Allocate for containers of one pod, each with its devices."""
        request = AllocateRequest()
        for ids in containers:
            request.container_requests.add(devices_ids=ids)
        return self._unary("Allocate", AllocateResponse)(request, timeout=_TIMEOUT_SECONDS)

    def _unary(self, call: str, answer: Any) -> Any:
        return self._channel.unary_unary(
            f"/{VERSION}.DevicePlugin/{call}", lambda message: message.SerializeToString(), answer.FromString
        )


class FakeKubelet:
    """A kubelet in this folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._requests: queue.Queue[Any] = queue.Queue()

    def register(self, request: Any, _context: grpc.ServicerContext) -> Any:
        """Takes a registration."""
        self._requests.put(request)
        return Empty()

    @contextmanager
    def registered(self) -> Iterator[Registered]:
        """The next plugin that registers."""
        request = self._requests.get(timeout=_TIMEOUT_SECONDS)
        with grpc.insecure_channel(f"unix:{self._folder / request.endpoint}") as channel:
            yield Registered(channel, request)


@contextmanager
def kubelet_in(folder: Path) -> Iterator[FakeKubelet]:
    """A kubelet that starts, which empties its folder, and ends with the block."""
    for left in folder.iterdir():
        left.unlink(missing_ok=True)
    kubelet = FakeKubelet(folder)
    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(kubelet.register, RegisterRequest.FromString, Empty.SerializeToString)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(f"{VERSION}.Registration", {"Register": handler}),)
    )
    server.add_insecure_port(f"unix:{folder / 'kubelet.sock'}")
    server.start()
    try:
        yield kubelet
    finally:
        server.stop(None).wait()
