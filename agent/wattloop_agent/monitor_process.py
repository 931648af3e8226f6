"""Puts the monitor together and runs it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any

from wattloop import interruption
from wattloop.errors import OperationError
from wattloop_agent.listening import listening_socket, removed_at_the_end
from wattloop_agent.monitor.descriptors import allowed_connections
from wattloop_agent.monitor.energy.ledger import Ledger
from wattloop_agent.monitor.energy.recorder import Assignments, EnergyRecorder, LedgerWriter
from wattloop_agent.monitor.heartbeat_link import HeartbeatLink
from wattloop_agent.monitor.leases import HEARTBEAT_SECONDS, LeaseMonitor
from wattloop_agent.monitor.loop_watchdog import LoopWatchdog
from wattloop_agent.monitor.meter import Meter
from wattloop_agent.monitor.nvml_readings import NvmlReadings
from wattloop_agent.monitor.policies.bounds_file import BoundsFile
from wattloop_agent.monitor.policies.violations import PolicyViolations
from wattloop_agent.monitor.power_controller_link import PowerControllerLink
from wattloop_agent.monitor.power_controller_opening import Opener, PathOpener
from wattloop_agent.monitor.power_controller_process import LINKS, PowerControllerProcess, ProcessOpener
from wattloop_agent.monitor.processes import ProcessCallers
from wattloop_agent.monitor.push.pusher import Pusher
from wattloop_agent.monitor.request_handlers import RequestHandlers
from wattloop_agent.monitor.server import Server
from wattloop_agent.monitor.watched_process import WatchedProcess
from wattloop_agent.request_error import RequestError
from wattloop_agent.settings import Settings

if TYPE_CHECKING:
    from wattloop_agent.monitor.pods.owners import PodCallers

logger = logging.getLogger(__name__)

# A request must not wait for the thread that looks at the GPUs as long as Python lets it by itself, 5 ms.
SWITCH_SECONDS = 0.0003

# After so many heartbeat timeouts an event loop that does not move hangs.
MAX_STALL_TIMEOUTS = 10

POWER_CONTROLLER_BOUNDS = tuple(
    f"{end}-{what}" for what in ("power-limit", "graphics-clock", "memory-clock") for end in ("minimum", "maximum")
)


def run_monitor(settings: Settings, watch_parent: int | None = None, ready: int | None = None) -> int:
    """Serve callers until an ending signal, or until a process is gone; then have everything given back.

    Args:
        settings: The agent's.
        watch_parent: The process with which the agent ends.
        ready: A file descriptor that gets a line once the socket is served, and is closed.

    Raises:
        OperationError: The socket's path or the metrics' address can't be used.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    with (
        interruption.deferred(),
        _listening(settings) as listening,
        interruption.cleanup_on_exit(settings.socket.unlink),
        removed_at_the_end(settings.socket),
    ):
        return asyncio.run(_Monitor(settings, watch_parent, ready).run(listening))


class _Monitor:
    def __init__(self, settings: Settings, watch_parent: int | None, ready: int | None) -> None:
        self._settings = settings
        self._watch_parent = watch_parent
        self._ready = ready
        self._ending = asyncio.Event()

    async def run(self, listening: socket.socket) -> int:
        settings = self._settings
        process = PowerControllerProcess(power_controller_options(settings)) if settings.part == "both" else None
        requests, heartbeats = (_opener(settings, process, link) for link in LINKS)
        power_controller = PowerControllerLink(requests, settings.heartbeat_timeout)
        readings = NvmlReadings(settings.nvml_library)
        meter = Meter(readings)
        bounds = BoundsFile(settings.monitor_state_directory)
        outside = PolicyViolations(bounds.limits, lambda: {gpu.uuid: gpu.name for gpu in meter.sampler.conditions})
        callers, assignments = _identity(settings, meter)
        heartbeat_seconds = min(HEARTBEAT_SECONDS, settings.heartbeat_timeout / 4)
        heartbeat_link = HeartbeatLink(heartbeats, settings.heartbeat_timeout)
        watchdog = LoopWatchdog(MAX_STALL_TIMEOUTS * settings.heartbeat_timeout, heartbeat_seconds)
        lease_monitor = LeaseMonitor(
            power_controller,
            heartbeat_link,
            callers,
            heartbeat_seconds,
            outside=outside,
            at_each_look=watchdog.end_if_it_hangs,
        )
        ledger_writer = LedgerWriter(settings.monitor_state_directory)
        recorder = EnergyRecorder(ledger_writer, assignments, meter.sampler.read_counters)
        server = Server(
            callers, RequestHandlers(meter, power_controller, lease_monitor, bounds.limits), allowed_connections()
        )
        self._end_with_parent()
        with contextlib.suppress(RequestError):
            # The power controller restores what an earlier one left before the first caller is served;
            # without it we serve too.
            await lease_monitor.refresh()
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            # First in, last out: while everything ends, another request changes nothing.
            stack.enter_context(
                interruption.wake_on_request(
                    lambda: loop.call_soon_threadsafe(self._end, "it was asked to end by a signal")
                )
            )
            stack.callback(ledger_writer.close)
            stack.callback(meter.close)
            stack.callback(power_controller.close)
            if process is not None:
                # Before its connections close: a power controller whose monitor is gone ends by itself.
                stack.push_async_callback(process.end)
            meter.sampler.start(settings.sample_interval, ledger_writer.add_samples, settings.counter_interval)
            pusher = _pusher(settings, ledger_writer.ledger, bounds)
            if pusher is not None:
                pusher.start()
                stack.callback(pusher.stop)
            if settings.metrics_bind is not None:
                # Who serves no metrics carries no HTTP server.
                from wattloop_agent.telemetry.metrics import AgentState, serve_metrics  # noqa: PLC0415

                state = AgentState(
                    meter.sampler, readings, lease_monitor, outside, server, ledger_writer, recorder, bounds, pusher
                )
                stack.callback(serve_metrics(settings.metrics_bind, state))
            await stack.enter_async_context(_running(recorder.run()))
            await stack.enter_async_context(_running(watchdog.run()))
            lease_monitor.start()
            stack.push_async_callback(asyncio.to_thread, lease_monitor.stop)
            stack.push_async_callback(server.close)
            await server.serve(listening)
            logger.info("agent ready", extra={"socket": str(settings.socket)})
            self._tell_ready()
            await self._ending.wait()
        return interruption.EXIT_INTERRUPTED if interruption.accept_request() else 0

    def _end_with_parent(self) -> None:
        if self._watch_parent is not None:
            gone = "the process it watches is gone"
            try:
                WatchedProcess.opened(self._watch_parent).when_ended(lambda: self._end(gone))
            except ProcessLookupError:
                self._end(gone)

    def _end(self, because: str) -> None:
        if not self._ending.is_set():
            logger.info("agent ends", extra={"because": because})
        self._ending.set()

    def _tell_ready(self) -> None:
        if self._ready is not None:
            with contextlib.suppress(OSError):
                os.write(self._ready, b"ready\n")
            os.close(self._ready)


def _opener(settings: Settings, process: PowerControllerProcess | None, link: str) -> Opener:
    if process is not None:
        return ProcessOpener(process, link)
    assert settings.power_controller_socket is not None, "settings_from demands it of --part monitor"
    return PathOpener(settings.power_controller_socket, settings.heartbeat_timeout)


def _identity(settings: Settings, meter: Meter) -> tuple[ProcessCallers | PodCallers, Assignments | None]:
    if settings.identity == "process":
        return ProcessCallers(), None
    # On a laptop nobody needs an HTTP/2 library.
    from wattloop_agent.monitor.pods.assignments import PodAssignments  # noqa: PLC0415
    from wattloop_agent.monitor.pods.owners import Node, PodCallers  # noqa: PLC0415

    callers = PodCallers(meter.uuid_of_device, Node(settings.kubelet_socket, settings.pod_logs))
    return callers, PodAssignments(callers)


def _pusher(settings: Settings, ledger: Ledger, bounds: BoundsFile) -> Pusher | None:
    if not settings.push_url or settings.push_token_file is None:
        return None
    # Who tells no operator carries no HTTP client.
    from wattloop_agent.monitor.push.operator_api import OperatorApi  # noqa: PLC0415

    api = OperatorApi(settings.push_url, settings.push_token_file, settings.push_ca_file)
    return Pusher(api, settings.node_name, ledger, bounds, settings.push_interval)


@contextlib.asynccontextmanager
async def _running(coroutine: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(coroutine)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def power_controller_options(settings: Settings) -> list[str]:
    """The command line of a power controller that this monitor starts."""
    options = [
        "--state-directory",
        str(settings.state_directory),
        "--lock-directory",
        str(settings.lock_directory),
        "--heartbeat-timeout",
        f"{settings.heartbeat_timeout:g}",
        "--log-format",
        settings.log_format,
        "--log-level",
        settings.log_level,
    ]
    for name in ("nvml-library", *POWER_CONTROLLER_BOUNDS):
        value = getattr(settings, name.replace("-", "_"))
        if value is not None:
            options += [f"--{name}", str(value)]
    return options


def _listening(settings: Settings) -> socket.socket:
    path = settings.socket
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A pod's user is whatever its image says; who may do what is decided by what the kernel says of the caller.
        return listening_socket(path, 0o666 if settings.identity == "pod" else 0o600)
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        told = "an agent serves it, or it is no socket" if in_use else error.strerror or str(error)
        raise OperationError(f"{path}: cannot listen there: {told}; name another with --socket") from error
