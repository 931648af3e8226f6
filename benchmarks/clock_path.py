"""How long a locked clock takes from the caller's request to NVML's return: through the agent, beside bare NVML.

``python benchmarks/clock_path.py [--requests 5000] [--gpus 1 8] [--pause 0] [--zeusd PATH]`` prints, for each number of
GPUs in a request, median and 99th percentile, and how much more each way takes than bare NVML. The GPUs are simulated,
on the wall clock. In the same run, in turns of 100 requests, so that what else the machine does strikes all alike:

- bare NVML: the same calls through pynvml in this process, what the hardware's library costs without anyone between;
- the agent: both processes, its energy metering at 10 Hz and metrics on, as on a node. The time is to the caller's
  answer, so it is more than to NVML's return;
- zeusd, where there is one (``cargo install zeusd``, or ``--zeusd``): Zeus's daemon, over its own unix socket. It keeps
  nothing of what it found, knows no owners and gives nothing back.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import nvml_simulator
from nvml_simulator.models import model_named
from wattloop.agent import AgentConnection
from wattloop.agent_process import start_agent, stop_agent
from wattloop.errors import OperationError
from wattloop.nvml import Session
from wattloop_agent.power_controller.devices import NvmlDevices
from wattloop_agent.power_controller.lease import Setting

MODEL = "H100"
GPUS = 8
TURN = 100
WARM_UP = 50
START_SECONDS = 10.0
Lock = Callable[[Sequence[int], int], None]


def require_simulated(found: list[str], simulated: list[str]) -> None:
    """Lock no clock of a real GPU, on a machine that has some."""
    if found != simulated:
        raise OperationError(f"these are not the simulated GPUs: {', '.join(found)}; nothing was set")


@contextlib.contextmanager
def through_nvml(uuids: list[str]) -> Iterator[Lock]:
    """The calls themselves."""
    with Session() as nvml:
        require_simulated([gpu.uuid for gpu in nvml.gpus()], uuids)
    devices = NvmlDevices()

    def lock(gpus: Sequence[int], megahertz: int) -> None:
        for gpu in gpus:
            devices.put(uuids[gpu], Setting.GRAPHICS_CLOCK, float(megahertz))

    lock([0], 900)
    yield lock
    devices.close()


@contextlib.contextmanager
def through_agent(uuids: list[str], folder: Path, environment: dict[str, str]) -> Iterator[Lock]:
    """A lease that is moved, as a frequency plan moves it at every instruction."""
    agent = start_agent(folder / "agent.sock", folder / "state", environment=environment, log=folder / "agent.log")
    with AgentConnection(folder / "agent.sock") as connection:
        require_simulated([gpu.uuid for gpu in connection.gpus()], uuids)
        connection.hold_clocks(uuids, 900)
        yield lambda gpus, megahertz: _held(connection, [uuids[gpu] for gpu in gpus], megahertz)
    stop_agent(agent)


def _held(connection: AgentConnection, uuids: list[str], megahertz: int) -> None:
    held = connection.hold_clocks(uuids, megahertz)
    assert [each.held_megahertz for each in held] == [megahertz] * len(uuids)


@contextlib.contextmanager
def through_zeusd(program: str, folder: Path, environment: dict[str, str]) -> Iterator[Lock]:
    """Zeus's daemon, by the HTTP of its unix socket on one connection that stays open."""
    path = folder / "zeusd.sock"
    words = [program, "serve", "--socket-path", str(path), "--enable", "gpu-control", "--enable", "gpu-read"]
    daemon = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + START_SECONDS
    while not path.is_socket():
        assert daemon.poll() is None, "zeusd ended"
        assert time.monotonic() < deadline, "zeusd serves nothing"
        time.sleep(0.01)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(path))
        connection.sendall(b"GET /discover HTTP/1.1\r\nHost: zeusd\r\n\r\n")
        names = [gpu["name"] for gpu in json.loads(connection.recv(65536).partition(b"\r\n\r\n")[2])["gpus"]]
        require_simulated(names, [model_named(MODEL).name] * GPUS)

        def lock(gpus: Sequence[int], megahertz: int) -> None:
            query = f"gpu_ids={','.join(map(str, gpus))}&min_clock_mhz={megahertz}&max_clock_mhz={megahertz}&block=true"
            request = f"POST /gpu/set_gpu_locked_clocks?{query} HTTP/1.1\r\nHost: zeusd\r\nContent-Length: 0\r\n\r\n"
            connection.sendall(request.encode())
            answer = connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200"), answer

        yield lock
    daemon.terminate()
    daemon.wait()


def measure(ways: dict[str, Lock], gpus: Sequence[int], requests: int, pause: float) -> dict[str, list[float]]:
    """Milliseconds of each request, by way, ascending; in turns."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for lock in ways.values():
        for number in range(WARM_UP):
            lock(gpus, 900 + 15 * (number % 2))
    for _ in range(requests // TURN):
        for name, lock in ways.items():
            for number in range(TURN):
                if pause:
                    time.sleep(pause)
                begin = time.perf_counter()
                lock(gpus, 900 + 15 * (number % 2))
                taken[name].append((time.perf_counter() - begin) * 1e3)
    return {name: sorted(times) for name, times in taken.items()}


def show(taken: dict[str, list[float]], gpus: int) -> None:
    """A table, with what each way adds to bare NVML."""
    bare = taken["bare NVML"]
    sys.stdout.write(
        f"{f'{gpus} GPUs locked, ms':24} {'median':>8} {'p99':>8} {'more, median':>14} {'more, p99':>10}\n"
    )
    for name, times in taken.items():
        half, most = len(times) // 2, int(len(times) * 0.99)
        more = f"{times[half] - bare[half]:14.3f} {times[most] - bare[most]:10.3f}"
        sys.stdout.write(f"{name:24} {times[half]:8.3f} {times[most]:8.3f} {more}\n")
    sys.stdout.write("\n")


def main() -> int:
    """Measure all ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=5000, help="of each way (default: 5000)")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, GPUS], help="GPUs of one request (default: 1 8)")
    parser.add_argument(
        "--pause", type=float, default=0.0, metavar="SECONDS", help="before each request, as a plan has (default: 0)"
    )
    parser.add_argument("--zeusd", default=shutil.which("zeusd"), help="the daemon's program (default: that in PATH)")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wattloop-")))
        state = nvml_simulator.create(folder / "gpus", model=MODEL, count=GPUS, permission="anyone")
        os.environ |= nvml_simulator.environment(state)
        nvml_simulator.load()
        with nvml_simulator.Machine(state) as machine:
            uuids = [gpu.uuid for gpu in machine.describe().gpus]
        environment = {
            **os.environ,
            "WATTLOOP_AGENT_METRICS_BIND": "127.0.0.1:0",
            "WATTLOOP_AGENT_SAMPLE_INTERVAL": "0.1",
            "WATTLOOP_AGENT_LOG_LEVEL": "warning",
        }
        ways = {
            "bare NVML": stack.enter_context(through_nvml(uuids)),
            "the agent": stack.enter_context(through_agent(uuids, folder, environment)),
        }
        if arguments.zeusd is None:
            sys.stderr.write("zeusd is left out: there is none; cargo install zeusd, or name it with --zeusd\n")
        else:
            ways["zeusd"] = stack.enter_context(through_zeusd(arguments.zeusd, folder, environment))
        for gpus in arguments.gpus:
            show(measure(ways, range(gpus), arguments.requests, arguments.pause), gpus)
    return 0


if __name__ == "__main__":
    sys.exit(main())
