"""Puts the setter together and runs it."""

from __future__ import annotations

import errno
import logging
import math
import socket
from collections.abc import Callable, Sequence

from wattloop import interruption
from wattloop.errors import CannotError
from wattloop_agent.boot import boot_id, boot_time_seconds
from wattloop_agent.listening import listening_socket, removed_at_the_end
from wattloop_agent.refusal import Refused
from wattloop_agent.setter.decisions import Allowed
from wattloop_agent.setter.devices import Devices
from wattloop_agent.setter.holder import Holder
from wattloop_agent.setter.lease import Setting
from wattloop_agent.setter.nvml_devices import NvmlDevices
from wattloop_agent.setter.server import Server
from wattloop_agent.setter.verbs import Verbs
from wattloop_agent.settings import Settings

logger = logging.getLogger(__name__)


def run_setter(settings: Settings, connections: Sequence[socket.socket] = ()) -> int:
    """Serve holds until told to end, then give everything back.

    Args:
        settings: The agent's.
        connections: To the reader that started it; none: it listens at the settings' setter socket.

    Returns:
        The exit code: 130 where an ending signal ended it.

    Raises:
        CannotError: The socket's path can't be used.
    """
    with interruption.deferred():
        ended_by_signal = _run_setter(settings, connections)
        interruption.take()
    return interruption.EXIT_INTERRUPTED if ended_by_signal else 0


def _run_setter(settings: Settings, connections: Sequence[socket.socket]) -> bool:
    holder = _holder(settings, NvmlDevices(settings.nvml_library))
    server = Server(holder, Verbs(holder, boot_time_seconds), settings.heartbeat_timeout, settings.setter_uids)
    holder.recover()
    if connections:
        for connection in connections:
            server.adopt(connection)
        return server.run()
    assert settings.setter_socket is not None, "settings_from demands it of --part setter"
    with _listening(settings) as listening, removed_at_the_end(settings.setter_socket):
        server.listen(listening)
        return server.run()


def restore_everything(settings: Settings) -> int:
    """Give back whatever an agent that is gone left held on this state folder; a signal does not keep it from that.

    Raises:
        CannotError: An agent runs on it, it can't be read, or a GPU could not be restored.
    """
    with interruption.deferred():
        return _restore_everything(settings)


def _restore_everything(settings: Settings) -> int:
    holder = _holder(settings, NvmlDevices(settings.nvml_library))
    holder.recover()
    if holder.state != "ready":
        raise CannotError(holder.state)
    try:
        restored = holder.release()
    except Refused as refusal:
        raise CannotError(refusal.message) from refusal
    finally:
        holder.close()
    if holder.warning:
        raise CannotError(holder.warning)
    logger.info("everything is as found", extra={"restored": len(restored)})
    return 0


def _holder(settings: Settings, devices: Devices, clock: Callable[[], float] = boot_time_seconds) -> Holder:
    bounds = {
        setting: Allowed(least or 0.0, most or math.inf)
        for setting, least, most in (
            (Setting.POWER_LIMIT, settings.minimum_power_limit, settings.maximum_power_limit),
            (Setting.GRAPHICS_CLOCK, settings.minimum_graphics_clock, settings.maximum_graphics_clock),
            (Setting.MEMORY_CLOCK, settings.minimum_memory_clock, settings.maximum_memory_clock),
        )
        if least is not None or most is not None
    }
    return Holder(
        devices, settings.state_directory, boot_id(), clock, bounds=bounds, lock_folder=settings.lock_directory
    )


def _listening(settings: Settings) -> socket.socket:
    path = settings.setter_socket
    assert path is not None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return listening_socket(path, 0o600 if len(settings.setter_uids) == 1 else 0o666)
    except OSError as error:
        told = "another setter listens there" if error.errno == errno.EADDRINUSE else error.strerror
        raise CannotError(f"{path}: cannot listen: {told}; one agent a node") from error
