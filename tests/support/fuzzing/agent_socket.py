"""Fuzz target: bytes on the agent's socket, with the real agent on simulated GPUs."""

import asyncio
import contextlib
import json
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pynvml

import nvml_simulator
from support.fuzzing.logs import DefectLog
from support.fuzzing.target import DefectError
from wattloop.gpus.agent import ANSWER_LIMIT_BYTES, REQUEST_LIMIT_BYTES
from wattloop_agent.json_lines import decoded_request
from wattloop_agent.monitor.caller_connection import is_unanswered
from wattloop_agent.monitor.connection_slots import allowed_connections
from wattloop_agent.monitor.gpu_meter import Meter
from wattloop_agent.monitor.identity import SocketCaller, no_step
from wattloop_agent.monitor.leases import LeaseTracker
from wattloop_agent.monitor.monitor_verbs import MonitorVerbs
from wattloop_agent.monitor.nvml_readings import NvmlReadings
from wattloop_agent.monitor.power_controller_link import (
    LINKS,
    PowerControllerLink,
    PowerControllerSupervisor,
    SupervisorConnector,
)
from wattloop_agent.monitor.socket_server import SocketServer
from wattloop_agent.monitor.watched_process import WatchedProcess
from wattloop_agent.refusals import Reason, RequestError
from wattloop_agent.unix_socket import listening_socket

# A bound for a busy machine; an answer takes about a millisecond.
MAX_ANSWER_SECONDS = 10.0
HEARTBEAT_TIMEOUT_SECONDS = 60.0
MAX_REQUESTS = 64
VICTIM_WATTS = 200.0
REASONS = {str(reason) for reason in Reason}


class SocketTarget:
    """The agent's socket; an input is the data of one caller on one connection.

    The caller has GPU 0 and shares GPU 1. Another caller, the victim, has GPU 2 and holds it at 200
    W. ``{0}``, ``{1}`` and ``{2}`` stand for the UUIDs of the GPUs.

    Checks: each request line has one answer (an unanswered one at most one), which is JSON of a bounded
    size, until the agent closes the connection; the victim is answered and keeps its limit; GPUs 1 and 2 never change,
    and GPU 0 is reset; the log has no error; no descriptor stays open.
    """

    tokens = (
        b'{"verb": "gpus"}\n', b'{"verb": "energy"}\n', b'{"verb": "list"}\n', b'{"verb": "release"}\n',
        b'"gpus": ["{0}"]', b'"gpus": ["{1}"]', b'"gpus": ["{2}"]', b"{0}", b"{1}", b"{2}", b'"watts": ',
        b'"megahertz": ', b'"domain": "memory"', b'"domain": "graphics"', b'"for_seconds": ',
        b'"interval_seconds": 0.02', b'"subscribe"', b'"unanswered": true', b'"hold_limit"', b'"hold_clocks"', b"NaN",
        b"-Infinity", b"null", b"true", b"1e999", b"9" * 400, b"9" * 5000, b"[" * 2000, b'{"a":' * 1000,
        b'"\\ud800"', b'"\\u0000"', b"\n",
        b"\r\n", b"\x00", b"\xff", b"\xef\xbb\xbf", b" " * 70000
    )  # fmt: skip

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self._loop.run_until_complete(self._open())
        self._idle_tasks = len(asyncio.all_tasks(self._loop))
        # Opens the descriptors that the first request of each kind opens for good.
        for seed in self.seeds():
            self._loop.run_until_complete(self._conversation(seed))
        self._descriptors = self._loop.run_until_complete(_idle_descriptors(self._idle_tasks + 1))

    async def _open(self) -> None:
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="w-")))
        state = nvml_simulator.create(
            self._folder / "gpus", model="A100", count=3, clock="virtual", permission="anyone"
        )
        self._gpus = self._stack.enter_context(nvml_simulator.Machine(state))
        self._log = self._stack.enter_context(DefectLog("wattloop_agent", "asyncio", level=logging.ERROR))
        self._uuids = [gpu.uuid for gpu in self._gpus.describe().gpus]
        os.environ.update(nvml_simulator.environment(state))
        library = nvml_simulator.build_library()
        meter = Meter(NvmlReadings(library))
        self._stack.callback(_shut_down_nvml)
        self._stack.callback(meter.close)
        process = PowerControllerSupervisor(_power_controller_options(self._folder, library))
        self._stack.push_async_callback(asyncio.to_thread, process.end)
        power_controller, heartbeats = (
            PowerControllerLink(SupervisorConnector(process, link), HEARTBEAT_TIMEOUT_SECONDS) for link in LINKS
        )
        self._stack.callback(power_controller.close)
        callers = _NamedCallers(self._uuids)
        lease_tracker = LeaseTracker(power_controller, heartbeats, callers)
        server = SocketServer(callers, MonitorVerbs(meter, power_controller, lease_tracker), allowed_connections())
        await lease_tracker.refresh()
        lease_tracker.start()
        self._stack.push_async_callback(asyncio.to_thread, lease_tracker.stop)
        self._path = self._folder / "agent.sock"
        listening = self._stack.enter_context(listening_socket(self._path))
        self._stack.push_async_callback(server.close)
        await server.serve(listening)
        self._victim = await self._connected("victim")
        self._stack.callback(self._victim[1].close)
        held = {"verb": "hold_limit", "gpus": self._uuids[2:], "watts": VICTIM_WATTS}
        if "result" not in await self._victim_answer(json.dumps(held).encode()):
            raise DefectError("the victim cannot hold its GPU")

    def seeds(self) -> list[bytes]:
        """Valid requests of docs/internals/agent.md, and invalid ones."""
        good = [
            {"verb": "gpus"},
            {"verb": "energy"},
            {"verb": "energy", "gpus": ["{0}", "{1}"]},
            {"verb": "hold_limit", "gpus": ["{0}"], "watts": 250},
            {"verb": "hold_limit", "gpus": ["{0}"], "watts": 300, "for_seconds": 5},
            {"verb": "hold_clocks", "gpus": ["{0}"], "megahertz": 1005},
            {"verb": "hold_clocks", "gpus": ["{0}"], "megahertz": 1215, "domain": "memory", "for_seconds": 5},
            {"verb": "hold_clocks", "gpus": ["{0}"], "megahertz": 1200, "unanswered": True},
            {"verb": "hold_clocks", "gpus": ["{2}"], "megahertz": 1200, "unanswered": True},
            {"verb": "release", "gpus": ["{0}"], "setting": "graphics_clock"},
            {"verb": "release", "gpus": ["{0}"]},
            {"verb": "release"},
            {"verb": "list"},
            {"verb": "hold_limit", "gpus": ["{1}"], "watts": 250},
            {"verb": "hold_limit", "gpus": ["{0}", "{2}"], "watts": 250},
            {"verb": "release", "gpus": ["{2}"]},
            {"verb": "subscribe", "interval_seconds": 0.02},
            {"verb": "subscribe", "gpus": ["{0}"], "interval_seconds": 0.02},
        ]
        bad = [b"hello", b"[]", b"{}", b"", b'{"verb": "shutdown"}', b'{"verb": "energy", "gpus": ["a", "a"]}']
        bad += [b'{"verb": "hold_limit", "gpus": ["{0}"], "watts": %s}' % text for text in (b"NaN", b"true", b"1e999")]
        bad += [b'{"verb": "hold_limit", "gpus": ["{0}"], "watts": %s}' % (b"9" * 5000), b"[" * 5000]
        lines = [json.dumps(request).encode() for request in good] + bad
        return [line + b"\n" for line in lines] + [b"\n".join(lines[:16]) + b"\n", b"\n".join(bad) + b"\n"]

    def check(self, data: bytes) -> None:
        self._log.clear()
        self._loop.run_until_complete(self._conversation(data))
        self._check_gpus()
        self._loop.run_until_complete(self._check_descriptors())
        self._log.check()

    def close(self) -> None:
        self._loop.run_until_complete(self._stack.aclose())
        self._loop.close()

    async def _conversation(self, data: bytes) -> None:
        for number, uuid in enumerate(self._uuids):
            data = data.replace(f"{{{number}}}".encode(), uuid.encode())
        data, expected = _bounded(data)
        reader, writer = await self._connected("caller")
        try:
            async with asyncio.timeout(MAX_ANSWER_SECONDS):
                sending = asyncio.create_task(_sent(writer, data))
                answers = await _answers(reader, expected)
                if not await self._victim_answer(b'{"verb": "energy"}'):
                    raise DefectError("another caller gets no answer")
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        except TimeoutError:
            raise DefectError(f"no answers within {MAX_ANSWER_SECONDS:g} s") from None
        finally:
            writer.transport.abort()
        for answer in answers:
            _check_answer(answer)
        await self._release()

    async def _release(self) -> None:
        """Release all leases of the caller, as the agent does when their owner has exited."""
        reader, writer = await self._connected("caller")
        try:
            async with asyncio.timeout(MAX_ANSWER_SECONDS):
                writer.write(b'{"verb": "release"}\n')
                if "result" not in json.loads(await reader.readline()):
                    raise DefectError("the caller cannot release its own leases")
                writer.write_eof()
                await reader.read()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _victim_answer(self, request: bytes) -> dict[str, object]:
        """The answer to a request of the victim."""
        reader, writer = self._victim
        writer.write(request + b"\n")
        answer: dict[str, object] = json.loads(await reader.readline())
        return answer

    async def _connected(self, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # An abstract name, which identifies the caller and disappears with the socket.
        connection.bind(f"\0{self._folder}/{name}/{id(connection)}")
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, str(self._path))
        return await asyncio.open_unix_connection(sock=connection, limit=ANSWER_LIMIT_BYTES)

    async def _check_descriptors(self) -> None:
        try:
            async with asyncio.timeout(MAX_ANSWER_SECONDS):
                # The agent closes its end slightly later than the caller.
                while _descriptors() > self._descriptors:
                    await asyncio.sleep(0.0005)
        except TimeoutError:
            raise DefectError(f"{_descriptors()} descriptors stay open, {self._descriptors} were") from None

    def _check_gpus(self) -> None:
        first, *others = self._gpus.describe().gpus
        limits = [gpu.power_limit_watts for gpu in others]
        if limits != [400, VICTIM_WATTS] or any(gpu.locked_graphics_clocks_megahertz for gpu in others):
            raise DefectError(f"a GPU of another caller changed: {others}")
        if first.power_limit_watts != 400 or first.locked_graphics_clocks_megahertz:
            raise DefectError(f"a GPU was not reset: {first}")


def _shut_down_nvml() -> None:
    """Close the simulated GPUs, so that later users of NVML in this process do not see them."""
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()


class _NamedPeer:
    def __init__(self, caller: SocketCaller) -> None:
        self._caller = caller
        self.owner = caller.owner

    async def caller(self) -> SocketCaller:
        """See `Peer`."""
        return self._caller

    def close(self) -> None:
        """See `Peer`."""


class _NamedCallers:
    """Identifies callers by the name of their socket, so that one process can be two callers."""

    def __init__(self, uuids: list[str]) -> None:
        self._callers = {
            "caller": SocketCaller("caller", frozenset(uuids[:1]), frozenset(uuids[1:2])),
            "victim": SocketCaller("victim", frozenset(uuids[2:])),
        }

    def peer(self, connection: socket.socket) -> _NamedPeer:
        name = bytes(connection.getpeername()).decode().split("/")[-2]
        if name not in self._callers:
            raise RequestError(Reason.NOT_PERMITTED, f"there is no caller {name}")
        return _NamedPeer(self._callers[name])

    def alive(self, owner: str, step: Callable[[], None] = no_step) -> bool:
        return owner in self._callers

    def process_of(self, owner: str, step: Callable[[], None] = no_step) -> WatchedProcess | None:
        """See `Authenticator`: a name has no process."""


def _power_controller_options(folder: Path, library: Path) -> list[str]:
    options = {
        "state-directory": folder / "state",
        "lock-directory": folder / "locks",
        "heartbeat-timeout": f"{HEARTBEAT_TIMEOUT_SECONDS:g}",
        "nvml-library": library,
        "log-level": "error",
    }
    return [argument for name, value in options.items() for argument in (f"--{name}", str(value))]


def _bounded(data: bytes) -> tuple[bytes, int]:
    """The data to send and its number of answers; a subscription never ends, so it is the last request."""
    *lines, rest = data.split(b"\n")
    for number, line in enumerate(lines[:MAX_REQUESTS]):
        if len(line) >= REQUEST_LIMIT_BYTES or _subscribes(line):
            return b"".join(each + b"\n" for each in lines[: number + 1]), _answered(lines[:number]) + 1
    if len(lines) > MAX_REQUESTS:
        return b"".join(each + b"\n" for each in lines[:MAX_REQUESTS]), _answered(lines[:MAX_REQUESTS])
    return data, _answered(lines) + (len(rest) > REQUEST_LIMIT_BYTES)


def _answered(lines: Sequence[bytes]) -> int:
    """The number of these requests that have an answer in any case."""
    return sum(not _is_unanswered(line) for line in lines)


def _is_unanswered(line: bytes) -> bool:
    try:
        return is_unanswered(decoded_request(line))
    except RequestError:
        return False


def _subscribes(line: bytes) -> bool:
    try:
        return decoded_request(line)["verb"] == "subscribe"
    except RequestError:
        return False


async def _sent(writer: asyncio.StreamWriter, data: bytes) -> None:
    # The agent may close the connection before it has read everything.
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        await writer.drain()


async def _answers(reader: asyncio.StreamReader, expected: int) -> list[bytes]:
    """This many answers, or fewer if the agent closes the connection."""
    answers: list[bytes] = []
    while len(answers) < expected:
        try:
            answer = await reader.readline()
        except ConnectionError:
            break
        except ValueError:
            raise DefectError(f"an answer of more than {ANSWER_LIMIT_BYTES} bytes") from None
        if not answer:
            break
        if b'"unanswered":true' in answer:
            _check_answer(answer)
        else:
            answers.append(answer)
    if expected and not answers:
        raise DefectError("the connection was closed without an answer")
    return answers


def _check_answer(line: bytes) -> None:
    answer = json.loads(line)
    if set(answer) == {"result"}:
        return
    error = answer.get("error")
    if set(answer) - {"unanswered"} != {"error"} or error["reason"] not in REASONS or not error["message"]:
        raise DefectError(f"not an answer of docs/internals/agent.md: {line[:200]!r}")


async def _idle_descriptors(idle_tasks: int) -> int:
    """The number of open descriptors once earlier connections are closed at both ends."""
    async with asyncio.timeout(MAX_ANSWER_SECONDS):
        while len(asyncio.all_tasks()) > idle_tasks:
            await asyncio.sleep(0.0005)
    return _descriptors()


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a Path for each would take longer than the request
