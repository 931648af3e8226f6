"""Runs monitor and power controller in this process, with a simulated clock for expiries.

It records the power controller's requests and answers in order, for the model to replay: among
concurrent requests only the power controller's order says which was first.
"""

import asyncio
import concurrent.futures
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.agent_stress.caller_identities import AgentAuthenticator
from wattloop_agent.json_lines import REQUEST_LIMIT_BYTES, decoded_request, encoded
from wattloop_agent.monitor.energy.recorder import LedgerWriter
from wattloop_agent.monitor.gpu_meter import Meter
from wattloop_agent.monitor.leases import LeaseTracker
from wattloop_agent.monitor.monitor_verbs import MonitorVerbs
from wattloop_agent.monitor.nvml_readings import NvmlReadings
from wattloop_agent.monitor.power_controller_link import PowerControllerLink
from wattloop_agent.monitor.socket_server import SocketServer
from wattloop_agent.power_controller.devices import NvmlDevices
from wattloop_agent.power_controller.lease_manager import LeaseManager
from wattloop_agent.power_controller.power_controller_loop import PowerControllerVerbs
from wattloop_agent.refusals import RequestError, error_answer
from wattloop_agent.unix_socket import listening_socket

Exchange = tuple[dict[str, Any], dict[str, Any]]
SAMPLE_SECONDS = 0.02
MakeAuthenticator = Callable[[Meter], AgentAuthenticator]


class NodeInProcess:
    """An agent that serves a socket; it is also its monitor's `Connector`.

    Args:
        folder: The folder of socket and state.
        make_authenticator: Creates the authenticator, given the meter.

    Attributes:
        exchanges: The power controller's requests and answers since it was last emptied.
    """

    start_seconds = 0.0

    def __init__(self, folder: Path, make_authenticator: MakeAuthenticator) -> None:
        self.now_seconds = 0.0
        self.exchanges: list[Exchange] = []
        self.socket = folder / "agent.sock"
        self._state = folder / "state"
        self._serving: set[concurrent.futures.Future[None]] = set()
        self._start_lease_manager()
        self.ledger_writer = LedgerWriter(folder / "monitor")
        self.meter = Meter(NvmlReadings())
        self._link = PowerControllerLink(self, 10.0)
        callers = make_authenticator(self.meter)
        self._lease_tracker = LeaseTracker(self._link, PowerControllerLink(self, 10.0), callers)
        self.server = SocketServer(callers, MonitorVerbs(self.meter, self._link, self._lease_tracker))

    async def start(self) -> None:
        """Serve and measure."""
        self._loop = asyncio.get_running_loop()
        self.sample_every(SAMPLE_SECONDS)
        self._lease_tracker.start()
        await self.server.serve(listening_socket(self.socket))

    async def close(self) -> None:
        """Stop serving."""
        await self.server.close()
        await asyncio.to_thread(self._lease_tracker.stop)
        self._link.close()
        await asyncio.gather(*(asyncio.wrap_future(each) for each in self._serving))
        self.meter.close()
        self.ledger_writer.close()
        self.lease_manager.close()

    def sample_every(self, seconds: float) -> None:
        """Set the monitor's sample interval."""
        self.meter.sampler.start(seconds, self.ledger_writer.add_samples)

    def ledger_millijoules(self) -> dict[str, int]:
        """The ledger's energy of each GPU after the newest sample."""
        return {gpu.uuid: gpu.energy_millijoules for gpu in self.ledger_writer.ledger.gpus()}

    def pass_time(self, seconds: float) -> None:
        """Advance the power controller's clock, and run its tick."""
        self.now_seconds += seconds
        self.lease_manager.tick()

    def restart_power_controller(self) -> None:
        """Replace the power controller by another, which reads the leases on disk."""
        for each in list(self._serving):
            each.cancel()
        self.lease_manager.close()
        self._start_lease_manager()

    def connect(self) -> socket.socket:
        """A connection of the monitor to the power controller."""
        ours, theirs = socket.socketpair()
        serving = asyncio.run_coroutine_threadsafe(self._serve_power_controller(theirs), self._loop)
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        return ours

    def handle_timeout(self) -> None:
        raise AssertionError("the power controller answers")

    def _start_lease_manager(self) -> None:
        self.lease_manager = LeaseManager(NvmlDevices(), self._state, "boot", lambda: self.now_seconds)
        self.lease_manager.recover()

    async def _serve_power_controller(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=connection, limit=REQUEST_LIMIT_BYTES)
        handlers = PowerControllerVerbs(self.lease_manager, lambda: self.now_seconds)
        try:
            while line := await reader.readline():
                request = decoded_request(line)
                try:
                    answer: dict[str, Any] = {"result": handlers.answer(request)}
                except RequestError as refusal:
                    answer = error_answer(refusal)
                self.exchanges.append((request, answer))
                writer.write(encoded(answer))
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()
