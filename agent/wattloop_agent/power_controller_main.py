"""The main program of the power controller process, and of ``wattloop agent --restore-only``.

A monitor starts it as ``python -m wattloop_agent.power_controller_main``.
"""

import argparse
import contextlib
import errno
import logging
import math
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from wattloop import interruption
from wattloop.errors import OperationError
from wattloop.printable import printable
from wattloop_agent.agent_logs import set_up_logs
from wattloop_agent.agent_settings import AgentSettings, add_options, settings_from
from wattloop_agent.durable_file import boot_id
from wattloop_agent.gpu_setting import AllowedRange, GpuSetting
from wattloop_agent.power_controller.devices import NvmlDevices
from wattloop_agent.power_controller.lease_manager import LeaseManager
from wattloop_agent.power_controller.power_controller_loop import PowerControllerLoop, PowerControllerVerbs
from wattloop_agent.refusals import RequestError
from wattloop_agent.unix_socket import listening_socket, removed_on_exit

logger = logging.getLogger(__name__)


def main() -> int:
    """Run the power controller that a monitor starts, on the inherited connections."""
    parser = argparse.ArgumentParser(
        prog="python -m wattloop_agent.power_controller_main",
        description="The power controller that a monitor starts.",
        allow_abbrev=False,
    )
    parser.add_argument("--connection", type=int, nargs="+", required=True, metavar="FD", help="the inherited sockets")
    add_options(parser)
    arguments = parser.parse_args()
    # Only the command line counts: the monitor has read the environment and the config file.
    settings = settings_from(arguments, {})
    set_up_logs(settings.log_format, settings.log_level)
    for descriptor in arguments.connection:
        os.set_inheritable(descriptor, False)
    try:
        return run_power_controller(settings, [socket.socket(fileno=descriptor) for descriptor in arguments.connection])
    except OperationError as error:
        sys.stderr.write(printable(f"wattloop agent: {error}") + "\n")
        return 1


def run_power_controller(settings: AgentSettings, connections: Sequence[socket.socket] = ()) -> int:
    """Serve the monitor until asked to end, then restore every GPU.

    Args:
        settings: The agent's.
        connections: To the monitor that started it; none: it listens at the settings' power controller socket.

    Returns:
        The exit code: 130 if an ending signal ended it.

    Raises:
        OperationError: The socket's path can't be used.
    """
    with interruption.deferred():
        with contextlib.ExitStack() as stack:
            lease_manager = _lease_manager(settings)
            server = PowerControllerLoop(
                lease_manager,
                PowerControllerVerbs(lease_manager, boot_time_seconds),
                settings.heartbeat_timeout,
                settings.power_controller_uids,
            )
            lease_manager.recover()
            for connection in connections:
                server.adopt(connection)
            if not connections:
                path = settings.power_controller_socket
                assert path is not None, "settings_from requires it with --part power-controller"
                server.listen(stack.enter_context(_listening(path, len(settings.power_controller_uids))))
                stack.enter_context(removed_on_exit(path))
            ended_by_signal = server.run()
        interruption.accept_request()
    return interruption.EXIT_INTERRUPTED if ended_by_signal else 0


def restore_everything(settings: AgentSettings) -> int:
    """Restore the GPUs that a dead agent left held, by the leases in its state folder; signals are deferred.

    Raises:
        OperationError: An agent uses the folder, it can't be read, or a GPU could not be restored.
    """
    with interruption.deferred():
        lease_manager = _lease_manager(settings)
        lease_manager.recover()
        if lease_manager.state != "ready":
            raise OperationError(lease_manager.state)
        try:
            restored = lease_manager.release()
        except RequestError as refusal:
            raise OperationError(refusal.message) from refusal
        finally:
            lease_manager.close()
        if lease_manager.warning:
            raise OperationError(lease_manager.warning)
        logger.info("every GPU is restored", extra={"restored": len(restored)})
        return 0


def _lease_manager(settings: AgentSettings) -> LeaseManager:
    bounds = {
        setting: AllowedRange(minimum or 0.0, maximum or math.inf)
        for setting, minimum, maximum in (
            (GpuSetting.POWER_LIMIT, settings.minimum_power_limit, settings.maximum_power_limit),
            (GpuSetting.GRAPHICS_CLOCK, settings.minimum_graphics_clock, settings.maximum_graphics_clock),
            (GpuSetting.MEMORY_CLOCK, settings.minimum_memory_clock, settings.maximum_memory_clock),
        )
        if minimum is not None or maximum is not None
    }
    return LeaseManager(
        NvmlDevices(settings.nvml_library),
        settings.state_directory,
        boot_id(),
        boot_time_seconds,
        bounds=bounds,
        lock_folder=settings.lock_directory,
    )


def boot_time_seconds() -> float:
    """Seconds since boot, including suspended time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _listening(path: Path, users: int) -> socket.socket:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return listening_socket(path, 0o600 if users == 1 else 0o666)
    except OSError as error:
        cause = "another power controller listens there" if error.errno == errno.EADDRINUSE else error.strerror
        raise OperationError(f"{path}: cannot listen: {cause}; only one agent may run per node") from error


if __name__ == "__main__":
    sys.exit(main())
