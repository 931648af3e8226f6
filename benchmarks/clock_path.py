"""Time to lock a GPU clock: through the agent, with bare NVML, and through Zeus' daemon.

``python benchmarks/clock_path.py [--requests 5000] [--gpus 1 8] [--pause 0] [--zeusd PATH]`` prints the median and the
99th percentile for each number of GPUs in a request, and the difference to bare NVML. The GPUs are simulated, on the
wall clock. The paths alternate every 100 requests in one run, so that other work on the machine affects all alike:

- bare NVML: the calls through pynvml in this process, the cost of the hardware's library alone;
- the agent: both processes, with energy metering at 10 Hz and metrics, as on a node. The time includes the response to
  the client;
- zeusd, if available (``cargo install zeusd``, or ``--zeusd``): Zeus' daemon, over its unix socket. It stores no
  previous settings, has no owners and restores nothing.
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
from wattloop.errors import OperationError
from wattloop.gpus.agent import AgentConnection
from wattloop.gpus.agent_process import start_agent, stop_agent
from wattloop.gpus.nvml import Session
from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.power_controller.devices import NvmlDevices

MODEL = "H100"
GPUS = 8
REQUESTS_PER_ROUND = 100
WARM_UP = 50
START_SECONDS = 10.0
Lock = Callable[[Sequence[int], int], None]


def require_simulated(found: list[str], simulated: list[str]) -> None:
    """Ensure that no clock of a real GPU is locked."""
    if found != simulated:
        raise OperationError(f"these are not the simulated GPUs: {', '.join(found)}; nothing was set")


@contextlib.contextmanager
def through_nvml(uuids: list[str]) -> Iterator[Lock]:
    """The NVML calls alone."""
    with Session() as nvml:
        require_simulated([gpu.uuid for gpu in nvml.gpus()], uuids)
    devices = NvmlDevices()

    def lock(gpus: Sequence[int], megahertz: int) -> None:
        for gpu in gpus:
            devices.put(uuids[gpu], GpuSetting.GRAPHICS_CLOCK, float(megahertz))

    lock([0], 900)
    yield lock
    devices.close()


@contextlib.contextmanager
def through_agent(uuids: list[str], folder: Path, environment: dict[str, str]) -> Iterator[Lock]:
    """A lease whose clock changes, as with a frequency plan at every instruction."""
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
    """Zeus' daemon, by HTTP over its unix socket on one persistent connection."""
    path = folder / "zeusd.sock"
    command = [program, "serve", "--socket-path", str(path), "--enable", "gpu-control", "--enable", "gpu-read"]
    daemon = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + START_SECONDS
    while not path.is_socket():
        assert daemon.poll() is None, "zeusd ended"
        assert time.monotonic() < deadline, "zeusd does not listen"
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
            response = connection.recv(65536)
            assert response.startswith(b"HTTP/1.1 200"), response

        yield lock
    daemon.terminate()
    daemon.wait()


def measure(paths: dict[str, Lock], gpus: Sequence[int], requests: int, pause: float) -> dict[str, list[float]]:
    """Milliseconds of each request by path, in rising order; the paths take turns."""
    taken: dict[str, list[float]] = {name: [] for name in paths}
    for lock in paths.values():
        for number in range(WARM_UP):
            lock(gpus, 900 + 15 * (number % 2))
    for _ in range(requests // REQUESTS_PER_ROUND):
        for name, lock in paths.items():
            for number in range(REQUESTS_PER_ROUND):
                if pause:
                    time.sleep(pause)
                begin = time.perf_counter()
                lock(gpus, 900 + 15 * (number % 2))
                taken[name].append((time.perf_counter() - begin) * 1e3)
    return {name: sorted(times) for name, times in taken.items()}


def show(taken: dict[str, list[float]], gpus: int) -> None:
    """Print a table, with the difference to bare NVML."""
    bare = taken["bare NVML"]
    sys.stdout.write(
        f"{f'{gpus} GPUs locked, ms':24} {'median':>8} {'p99':>8} {'added, median':>14} {'added, p99':>10}\n"
    )
    for name, times in taken.items():
        half, late = len(times) // 2, int(len(times) * 0.99)
        added = f"{times[half] - bare[half]:14.3f} {times[late] - bare[late]:10.3f}"
        sys.stdout.write(f"{name:24} {times[half]:8.3f} {times[late]:8.3f} {added}\n")
    sys.stdout.write("\n")


def main() -> int:
    """Measure all paths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=5000, help="number of requests on each path (default: 5000)")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, GPUS], help="GPUs per request (default: 1 8)")
    parser.add_argument(
        "--pause",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="pause before each request (default: 0)",
    )
    parser.add_argument("--zeusd", default=shutil.which("zeusd"), help="the daemon's program (default: from PATH)")
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
        paths = {
            "bare NVML": stack.enter_context(through_nvml(uuids)),
            "the agent": stack.enter_context(through_agent(uuids, folder, environment)),
        }
        if arguments.zeusd is None:
            sys.stderr.write("zeusd is skipped, because it is not installed; run cargo install zeusd, or use --zeusd\n")
        else:
            paths["zeusd"] = stack.enter_context(through_zeusd(arguments.zeusd, folder, environment))
        for gpus in arguments.gpus:
            show(measure(paths, range(gpus), arguments.requests, arguments.pause), gpus)
    return 0


if __name__ == "__main__":
    sys.exit(main())
