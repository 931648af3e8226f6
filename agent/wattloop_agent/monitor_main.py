"""The main program of the monitor process: builds its parts and runs them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import sys
from typing import TYPE_CHECKING

from wattloop import interruption, threads
from wattloop.errors import OperationError
from wattloop_agent.agent_settings import AgentSettings
from wattloop_agent.monitor.connection_slots import allowed_connections
from wattloop_agent.monitor.energy.recorder import Assignments, EnergyRecorder, LedgerWriter
from wattloop_agent.monitor.gpu_meter import Meter
from wattloop_agent.monitor.gpu_users import GpuUsers, ListedGpus
from wattloop_agent.monitor.identity import ProcessAuthenticator
from wattloop_agent.monitor.leases import HEARTBEAT_SECONDS, LeaseTracker
from wattloop_agent.monitor.loop_watchdog import LoopWatchdog, WatchedTask
from wattloop_agent.monitor.monitor_verbs import MonitorVerbs
from wattloop_agent.monitor.nvml_readings import NvmlReadings
from wattloop_agent.monitor.ordered_limits import OrderedLimits
from wattloop_agent.monitor.policy_limits import BoundsFile, PolicyViolations
from wattloop_agent.monitor.power_controller_link import (
    LINKS,
    Connector,
    PowerControllerLink,
    PowerControllerSupervisor,
    SocketConnector,
    SupervisorConnector,
)
from wattloop_agent.monitor.socket_server import SocketServer
from wattloop_agent.monitor.watched_process import WatchedProcess
from wattloop_agent.refusals import RequestError
from wattloop_agent.unix_socket import listening_socket, removed_on_exit

if TYPE_CHECKING:
    from wattloop_agent.monitor.pods.pod_authenticator import PodAuthenticator
    from wattloop_agent.monitor.push.pusher import Pusher

logger = logging.getLogger(__name__)

# Python switches threads every 5 ms by default, too long for a request to wait for the thread that samples the GPUs.
SWITCH_SECONDS = 0.0003

# The agent ends so long after a thread or a task that must not end.
CHECK_SECONDS = 1.0

# An event loop that makes no progress for so many heartbeat timeouts counts as hung.
MAX_STALL_TIMEOUTS = 10


def run_monitor(settings: AgentSettings, watch_parent: int | None = None, ready: int | None = None) -> int:
    """Serve callers until a signal or the end of the watched process, then restore every GPU.

    Args:
        settings: The agent's.
        watch_parent: The agent ends when this process ends.
        ready: A file descriptor to write a line to once the socket is served; it is then closed.

    Raises:
        OperationError: The socket's path or the metrics' address can't be used.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    with (
        interruption.deferred(),
        _listening(settings) as listening,
        interruption.cleanup_on_exit(settings.socket.unlink),
        removed_on_exit(settings.socket),
    ):
        return asyncio.run(_Monitor(settings, watch_parent, ready).run(listening))


class _Monitor:
    def __init__(self, settings: AgentSettings, watch_parent: int | None, ready: int | None) -> None:
        self._settings = settings
        self._watch_parent = watch_parent
        self._ready = ready
        self._ending = asyncio.Event()

    async def run(self, listening: socket.socket) -> int:
        settings = self._settings
        supervisor = PowerControllerSupervisor(power_controller_options(settings)) if settings.part == "both" else None
        power_controller, heartbeats = (
            PowerControllerLink(_connector(settings, supervisor, link), settings.heartbeat_timeout) for link in LINKS
        )
        readings = NvmlReadings(settings.nvml_library)
        ledger_writer = LedgerWriter(settings.monitor_state_directory)
        meter = Meter(readings, integrated=ledger_writer.integrated, counter=ledger_writer.counter_id)
        bounds = BoundsFile(settings.monitor_state_directory)
        violations = PolicyViolations(bounds.limits, lambda: {gpu.uuid: gpu.name for gpu in meter.sampler.statuses})
        authenticator, pods, assignments = _authenticator(settings, meter)
        meter.users = GpuUsers(readings.processes, authenticator)
        heartbeat_seconds = min(HEARTBEAT_SECONDS, settings.heartbeat_timeout / 4)
        watchdog = LoopWatchdog(MAX_STALL_TIMEOUTS * settings.heartbeat_timeout, heartbeat_seconds)
        lease_tracker = LeaseTracker(
            power_controller,
            heartbeats,
            authenticator,
            heartbeat_seconds,
            violations=violations,
            before_each_check=watchdog.end_if_hung,
            # On a laptop the GPU and its parts belong to one user.
            partitioned=frozenset if pods is None else meter.partitioned,
        )
        recorder = EnergyRecorder(ledger_writer, assignments, meter.sampler.read_counters)
        handlers = MonitorVerbs(meter, power_controller, lease_tracker, bounds.limits)
        server = SocketServer(authenticator, handlers, allowed_connections())
        self._end_with_parent()
        with contextlib.suppress(RequestError):
            # The power controller restores what an earlier one left before the first caller is
            # served. Without a power controller the monitor serves too.
            await lease_tracker.refresh()
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            # First in, last out: a signal during the shutdown changes nothing.
            stack.enter_context(
                interruption.wake_on_request(lambda: loop.call_soon_threadsafe(self._end, "a signal asked it to end"))
            )
            stack.callback(ledger_writer.close)
            stack.callback(meter.close)
            stack.callback(power_controller.close)
            if supervisor is not None:
                # Before its connections close, since a power controller whose monitor is gone ends by itself.
                stack.push_async_callback(asyncio.to_thread, supervisor.end)
            meter.sampler.start(settings.sample_interval, ledger_writer.add_samples, settings.counter_interval)
            orders = None if pods is None else OrderedLimits(pods, handlers, loop)
            pusher = _pusher(settings, bounds, meter, orders=orders, recorder=recorder)
            if pusher is not None:
                pusher.start()
                stack.callback(pusher.stop)
            if settings.metrics_bind is not None:
                # Imported here: an agent that serves no metrics needs no HTTP server.
                from wattloop_agent.telemetry.agent_metrics import AgentState, serve_metrics  # noqa: PLC0415

                parts = (meter.sampler, readings, lease_tracker, violations, server, ledger_writer, recorder, bounds)
                stack.callback(serve_metrics(settings.metrics_bind, AgentState(*parts, pusher)))
            await stack.enter_async_context(WatchedTask(recorder.run(), "energy-recorder"))
            await stack.enter_async_context(WatchedTask(watchdog.run(), "loop-progress"))
            lease_tracker.start()
            stack.push_async_callback(asyncio.to_thread, lease_tracker.stop)
            stack.push_async_callback(server.close)
            await server.serve(listening)
            logger.info("agent ready", extra={"socket": str(settings.socket)})
            self._notify_ready()
            if problem := await self._until_ended():
                logger.error("a part of the agent has ended; the agent ends", extra={"problem": problem})
                return 1
        return interruption.EXIT_INTERRUPTED if interruption.accept_request() else 0

    async def _until_ended(self) -> str:
        """Wait until the agent is to end; returns why if it is a part of it that has ended, and empty otherwise."""
        while not self._ending.is_set():
            if problem := threads.problem():
                return problem
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._ending.wait()
        return ""

    def _end_with_parent(self) -> None:
        if self._watch_parent is not None:
            gone = "the watched process is gone"
            try:
                WatchedProcess.opened(self._watch_parent).when_ended(lambda: self._end(gone))
            except ProcessLookupError:
                self._end(gone)

    def _end(self, reason: str) -> None:
        if not self._ending.is_set():
            logger.info("agent ends", extra={"reason": reason})
        self._ending.set()

    def _notify_ready(self) -> None:
        if self._ready is not None:
            with contextlib.suppress(OSError):
                os.write(self._ready, b"ready\n")
            os.close(self._ready)


def _connector(settings: AgentSettings, supervisor: PowerControllerSupervisor | None, link: str) -> Connector:
    if supervisor is not None:
        return SupervisorConnector(supervisor, link)
    assert settings.power_controller_socket is not None, "settings_from requires it with --part monitor"
    return SocketConnector(settings.power_controller_socket, settings.heartbeat_timeout)


def _authenticator(
    settings: AgentSettings, meter: Meter
) -> tuple[ProcessAuthenticator | PodAuthenticator, PodAuthenticator | None, Assignments | None]:
    if settings.identity == "process":
        return ProcessAuthenticator(), None, None
    # Imported here: a laptop needs no HTTP/2 library.
    from wattloop_agent.monitor.pods.assignments import PodAssignments  # noqa: PLC0415
    from wattloop_agent.monitor.pods.pod_authenticator import Node, PodAuthenticator  # noqa: PLC0415

    authenticator = PodAuthenticator(
        meter.uuid_by_device, Node(settings.kubelet_socket, settings.pod_logs), meter.partitioned
    )

    def listed() -> ListedGpus | None:
        return None if meter.users is None else meter.users.listed

    return authenticator, authenticator, PodAssignments(authenticator, listed)


def _pusher(
    settings: AgentSettings, bounds: BoundsFile, meter: Meter, *, orders: OrderedLimits | None, recorder: EnergyRecorder
) -> Pusher | None:
    if not settings.push_url or settings.push_token_file is None:
        return None
    # Imported here: an agent that reports to no operator needs no HTTP client.
    from wattloop_agent.monitor.push.pusher import NodeReportApi, Pusher  # noqa: PLC0415

    api = NodeReportApi(settings.push_url, settings.push_token_file, settings.push_ca_file)
    return Pusher(
        api,
        settings.node_name,
        recorder.ledger,
        bounds,
        settings.push_interval,
        limits=lambda: meter.sampler.statuses,
        orders=orders,
        are_assignments_known=lambda: recorder.are_assignments_known,
    )


def power_controller_options(settings: AgentSettings) -> list[str]:
    """The command line of a power controller that this monitor starts."""
    names = ["state-directory", "lock-directory", "heartbeat-timeout", "log-format", "log-level", "nvml-library"]
    for setting in ("power-limit", "graphics-clock", "memory-clock"):
        names += [f"minimum-{setting}", f"maximum-{setting}"]
    values = ((f"--{name}", getattr(settings, name.replace("-", "_"))) for name in names)
    return [word for name, value in values if value is not None for word in (name, str(value))]


def _listening(settings: AgentSettings) -> socket.socket:
    path = settings.socket
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A pod's user depends on its image. Access is decided by what the kernel reports about the caller.
        return listening_socket(path, 0o666 if settings.identity == "pod" else 0o600)
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        cause = "an agent serves it, or it is no socket" if in_use else error.strerror or str(error)
        raise OperationError(f"{path}: cannot listen there: {cause}; choose another with --socket") from error
