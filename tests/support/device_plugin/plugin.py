"""The plugin as a whole: watches the GPUs, serves the kubelet, and registers again with each kubelet that starts."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import grpc

from support.device_plugin.devices import Device
from support.device_plugin.messages import VERSION, DevicePluginOptions, Empty, RegisterRequest
from support.device_plugin.service import Service

logger = logging.getLogger("device_plugin")

RESOURCE = "nvidia.com/gpu"
ENDPOINT = "wattloop-simulated-gpus.sock"
_KUBELET_SOCKET = "kubelet.sock"
_LOOK_SECONDS = 0.5
_CALL_SECONDS = 30.0


class Plugin:
    """One plugin with one kubelet.

    Args:
        folder: The kubelet's, where its socket is and ours has to be.
        devices: Tells the devices as they are now.
        service: The service that the kubelet calls.
    """

    def __init__(self, folder: Path, devices: Callable[[], tuple[Device, ...]], service: Service) -> None:
        self._folder = folder
        self._devices = devices
        self._service = service
        self._server: grpc.Server | None = None
        self._registered_with: tuple[int, int] | None = None

    def run(self, stopping: threading.Event) -> None:
        """Works until the event is set."""
        try:
            while True:
                self.poll()
                if stopping.wait(_LOOK_SECONDS):
                    return
        finally:
            self._service.end()
            self._stop_serving()

    def poll(self) -> None:
        """Takes in how GPUs and kubelet are, and does what follows."""
        self._service.offer(self._devices())
        kubelet = _identity(self._folder / _KUBELET_SOCKET)
        # A new kubelet empties its folder, so the plugin creates its socket again and registers again.
        if kubelet is None or (kubelet == self._registered_with and (self._folder / ENDPOINT).exists()):
            return
        self._stop_serving()
        self._server = self._service.serve(self._folder / ENDPOINT)
        try:
            register(self._folder / _KUBELET_SOCKET)
        except grpc.RpcError as error:
            logger.warning("the kubelet takes no registration yet: %s", error)
            return
        self._registered_with = kubelet
        logger.info("registered %s with the kubelet in %s", RESOURCE, self._folder)

    def _stop_serving(self) -> None:
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None


def register(kubelet: Path) -> None:
    """Tells a kubelet at this socket of the plugin."""
    with grpc.insecure_channel(f"unix:{kubelet}") as channel:
        call = channel.unary_unary(
            f"/{VERSION}.Registration/Register", RegisterRequest.SerializeToString, Empty.FromString
        )
        request = RegisterRequest(
            version=VERSION, endpoint=ENDPOINT, resource_name=RESOURCE, options=DevicePluginOptions()
        )
        call(request, timeout=_CALL_SECONDS)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_ctime_ns
