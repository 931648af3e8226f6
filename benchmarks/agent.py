"""What the node agent costs while it meters, and how long a clock takes from the request to the device.

``python benchmarks/agent.py [--seconds 60] [--subscribers 1] [--interval 0.1] [--counter-interval 0]`` prints both
tables. The GPUs are eight simulated ones on the wall clock, looked at at 10 Hz, their counters read at each look, with
the energy ledger kept, metrics served and subscribers at 10 Hz. The peers run at the same time, so that a machine with
other work does the same to all: a process that calls NVML alone, through the same pynvml at the same pace (power of
each GPU at each look, its counter when that is due; the limit in force and clocks once a second, the limit asked for
every 5 s), and one that merely wakes up at that pace.

``--hardware`` measures on this machine's own GPUs, by reads only: the monitor part runs alone, so nothing can be set.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import nvml_simulator
from wattloop.agent import AgentConnection
from wattloop.agent_process import start_agent, stop_agent
from wattloop.nvml import Session
from wattloop_agent.power_controller.devices import NvmlDevices
from wattloop_agent.power_controller.lease import Setting

GPUS = 8
LIMIT_SECONDS = 5.0
CLOCK_REQUESTS = 2000
WARM_UP_SECONDS = 2.0


@dataclass(frozen=True)
class Pace:
    """How often what is asked."""

    gpus: int
    interval_seconds: float
    counter_interval_seconds: float

    def every(self, seconds: float) -> int:
        """How many looks there are to that."""
        return max(round(seconds / self.interval_seconds), 1)


def cpu_seconds(pid: int) -> float:
    """Time that a process's threads ran, to the nanosecond; its own clock has ticks of 10 ms."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def memory_megabytes(pid: int) -> float:
    """Its proportional share of memory: pages that both processes map count once."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid}: no Pss")


def children_of(pid: int) -> list[int]:
    """The processes that this one started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def percentiles(milliseconds: list[float]) -> str:
    """Median and 99th percentile, in milliseconds."""
    ordered = sorted(milliseconds)
    return f"{ordered[len(ordered) // 2]:8.3f} {ordered[int(len(ordered) * 0.99)]:8.3f}"


def measure_cost(socket: Path, monitor: int, seconds: float, subscribers: int, pace: Pace) -> None:
    """CPU and memory of the agent's processes over the time given, beside the peers'."""
    parts = dict(zip(("monitor", "power-controller"), (monitor, *children_of(monitor)), strict=False))
    stop = threading.Event()

    def subscribe() -> None:
        with AgentConnection(socket) as connection:
            for _ in connection.subscribe(pace.interval_seconds):
                if stop.is_set():
                    return

    threads = [threading.Thread(target=subscribe) for _ in range(subscribers)]
    for thread in threads:
        thread.start()
    paced = [word for name, value in asdict(pace).items() for word in (OPTIONS[name], str(value))]
    peers = [subprocess.Popen([sys.executable, __file__, "--peer", name, *paced]) for name in PEERS]
    pids = [*parts.values(), *(peer.pid for peer in peers)]
    time.sleep(WARM_UP_SECONDS)
    before = [cpu_seconds(pid) for pid in pids]
    time.sleep(seconds)
    used = [(cpu_seconds(pid) - spent) / seconds * 100 for pid, spent in zip(pids, before, strict=True)]
    memory = [memory_megabytes(pid) for pid in parts.values()]
    stop.set()
    for peer in peers:
        peer.kill()
        peer.wait()
    for thread in threads:
        thread.join()
    load = f"{subscribers} subscriber{'s' * (subscribers != 1)}"
    counters = f"counters every {max(pace.counter_interval_seconds, pace.interval_seconds):g} s"
    sys.stdout.write(
        f"{pace.gpus} GPUs at {1 / pace.interval_seconds:g} Hz, {counters}, {load}, over {seconds:g} s\n"
        f"{'':44} % of a core   MB (Pss)\n"
    )
    *of_parts, nvml, waking = used
    for name, cpu, megabytes in zip(parts, of_parts, memory, strict=True):
        sys.stdout.write(f"{name:44} {cpu:11.2f} {megabytes:10.1f}\n")
    sys.stdout.write(f"{'together':44} {sum(of_parts):11.2f} {sum(memory):10.1f}\n")
    sys.stdout.write(f"{'NVML alone at the same pace':44} {nvml:11.2f}\n")
    sys.stdout.write(f"{'merely waking up at the same pace':44} {waking:11.2f}\n")
    sys.stdout.write(f"{'together, without NVML alone':44} {sum(of_parts) - nvml:11.2f}\n\n")


def call_nvml_for_ever(pace: Pace) -> None:
    """The first peer."""
    pynvml = importlib.import_module("pynvml")
    pynvml.nvmlInit()
    gpus = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pace.gpus)]
    counted = pace.every(pace.counter_interval_seconds)
    for number in itertools.count():
        for index, gpu in enumerate(gpus):
            if number % counted == index * counted // len(gpus):
                pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
            pynvml.nvmlDeviceGetPowerUsage(gpu)
            if number % pace.every(1.0) == 0:
                pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu)
                pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_GRAPHICS)
            if number % pace.every(LIMIT_SECONDS) == 0:
                pynvml.nvmlDeviceGetPowerManagementLimit(gpu)
        time.sleep(pace.interval_seconds)


def wake_up_for_ever(pace: Pace) -> None:
    """The second."""
    while True:
        time.sleep(pace.interval_seconds)


OPTIONS = {"gpus": "--gpus", "interval_seconds": "--interval", "counter_interval_seconds": "--counter-interval"}
PEERS = {"nvml": call_nvml_for_ever, "wake": wake_up_for_ever}


def measure_clocks(socket: Path, uuid: str) -> None:
    """From a caller's request to its answer, beside NVML's own time for the same."""
    through_agent, alone = [], []
    with AgentConnection(socket) as connection:
        connection.hold_clocks([uuid], 900)
        for number in range(CLOCK_REQUESTS):
            begin = time.perf_counter()
            connection.hold_clocks([uuid], 900 + 15 * (number % 2))
            through_agent.append((time.perf_counter() - begin) * 1e3)
        connection.release()
    devices = NvmlDevices()
    for number in range(CLOCK_REQUESTS):
        begin = time.perf_counter()
        devices.put(uuid, Setting.GRAPHICS_CLOCK, 900.0 + 15 * (number % 2))
        alone.append((time.perf_counter() - begin) * 1e3)
    devices.put(uuid, Setting.GRAPHICS_CLOCK, None)
    sys.stdout.write(f"{'one clock locked, ms':32} {'median':>8} {'p99':>8}\n")
    sys.stdout.write(f"{'through the agent':32} {percentiles(through_agent)}\n")
    sys.stdout.write(f"{'NVML alone':32} {percentiles(alone)}\n")


def run_agent(folder: Path, seconds: float, subscribers: int, pace: Pace, *, hardware: bool) -> None:
    """Measure what it costs; on simulated GPUs its clocks' path too."""
    environment = {
        **os.environ,
        "WATTLOOP_AGENT_METRICS_BIND": "127.0.0.1:0",
        "WATTLOOP_AGENT_SAMPLE_INTERVAL": str(pace.interval_seconds),
        "WATTLOOP_AGENT_COUNTER_INTERVAL": str(pace.counter_interval_seconds),
        "WATTLOOP_AGENT_LOG_LEVEL": "warning",
    }
    if hardware:
        # The part that can set something has nobody behind its socket.
        environment |= {
            "WATTLOOP_AGENT_PART": "monitor",
            "WATTLOOP_AGENT_POWER_CONTROLLER_SOCKET": str(folder / "nobody.sock"),
        }
    agent = start_agent(folder / "agent.sock", folder / "state", environment=environment)
    measure_cost(folder / "agent.sock", agent.pid, seconds, subscribers, pace)
    if not hardware:
        with AgentConnection(folder / "agent.sock") as connection:
            uuid = connection.gpus()[0].uuid
        measure_clocks(folder / "agent.sock", uuid)
    stop_agent(agent)


def main() -> int:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--subscribers", type=int, default=1, help="at the looks' interval (default: 1)")
    parser.add_argument("--interval", type=float, default=0.1, metavar="SECONDS", help="of looks (default: 0.1)")
    parser.add_argument("--counter-interval", type=float, default=0.0, metavar="SECONDS", help="default: each look")
    parser.add_argument("--hardware", action="store_true", help="this machine's own GPUs, by reads only")
    parser.add_argument("--gpus", type=int, default=GPUS, help=f"how many simulated ones (default: {GPUS})")
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    pace = Pace(arguments.gpus, arguments.interval, arguments.counter_interval)
    if arguments.peer is not None:
        PEERS[arguments.peer](pace)
    with tempfile.TemporaryDirectory(prefix="wattloop-") as name:
        folder = Path(name)
        if arguments.hardware:
            with Session() as nvml:
                pace = replace(pace, gpus=len(nvml.gpus()))
        else:
            state = nvml_simulator.create(folder / "gpus", model="H100", count=pace.gpus, permission="anyone")
            os.environ |= nvml_simulator.environment(state)
            nvml_simulator.load()
        run_agent(folder, arguments.seconds, arguments.subscribers, pace, hardware=arguments.hardware)
    return 0


if __name__ == "__main__":
    sys.exit(main())
