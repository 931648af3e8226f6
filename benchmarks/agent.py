"""CPU and memory of the node agent while it meters, and the time from a clock request to the device.

``python benchmarks/agent.py [--seconds 60] [--subscribers 1] [--interval 0.1] [--counter-interval 0]`` prints both
tables. By default, the agent samples eight simulated GPUs at 10 Hz on the wall clock, reads the energy counters in each
sample, maintains the energy ledger, serves metrics, and has subscribers at 10 Hz. Two other processes run at the same
time, so that other work on the machine affects all alike. One makes the same NVML calls through pynvml at the same rate
(power of each GPU in each sample, its counter when due; the enforced limit and clocks every second, the configured
limit every 5 s). The other only wakes up at that rate.

``--hardware`` measures on this machine's GPUs, with reads only: the monitor process runs alone, so nothing can be set.
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
from wattloop.gpus.agent import AgentConnection
from wattloop.gpus.agent_process import start_agent, stop_agent
from wattloop.gpus.nvml import Session
from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.power_controller.devices import NvmlDevices

GPUS = 8
LIMIT_SECONDS = 5.0
CLOCK_REQUESTS = 2000
WARM_UP_SECONDS = 2.0


@dataclass(frozen=True)
class SamplingRate:
    """Number of GPUs and intervals of the samples."""

    gpus: int
    interval_seconds: float
    counter_interval_seconds: float

    def every(self, seconds: float) -> int:
        """Number of samples in this time, at least 1."""
        return max(round(seconds / self.interval_seconds), 1)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process's threads, in nanosecond resolution; the process clock has ticks of 10 ms."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def memory_megabytes(pid: int) -> float:
    """Proportional set size of a process, which counts pages shared by both processes once."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid}: no Pss")


def children_of(pid: int) -> list[int]:
    """The child processes of a process, started by any of its threads."""
    by_thread = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return sorted(int(child) for children in by_thread for child in children)


def percentiles(milliseconds: list[float]) -> str:
    """Median and 99th percentile, in milliseconds."""
    ordered = sorted(milliseconds)
    return f"{ordered[len(ordered) // 2]:8.3f} {ordered[int(len(ordered) * 0.99)]:8.3f}"


def measure_cost(socket: Path, monitor: int, seconds: float, subscribers: int, rate: SamplingRate) -> None:
    """Measure CPU and memory of the agent's processes and of the other processes."""
    parts = dict(zip(("monitor", "power-controller"), (monitor, *children_of(monitor)), strict=False))
    stop = threading.Event()

    def subscribe() -> None:
        with AgentConnection(socket) as connection:
            for _ in connection.subscribe(rate.interval_seconds):
                if stop.is_set():
                    return

    threads = [threading.Thread(target=subscribe) for _ in range(subscribers)]
    for thread in threads:
        thread.start()
    options = [option for name, value in asdict(rate).items() for option in (OPTIONS[name], str(value))]
    peers = [subprocess.Popen([sys.executable, __file__, "--peer", name, *options]) for name in PEERS]
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
    counters = f"counters every {max(rate.counter_interval_seconds, rate.interval_seconds):g} s"
    sys.stdout.write(
        f"{rate.gpus} GPUs at {1 / rate.interval_seconds:g} Hz, {counters}, {load}, over {seconds:g} s\n"
        f"{'':44} % of a core   MB (Pss)\n"
    )
    *of_parts, nvml, waking = used
    for name, cpu, megabytes in zip(parts, of_parts, memory, strict=True):
        sys.stdout.write(f"{name:44} {cpu:11.2f} {megabytes:10.1f}\n")
    sys.stdout.write(f"{'together':44} {sum(of_parts):11.2f} {sum(memory):10.1f}\n")
    sys.stdout.write(f"{'NVML alone at the same rate':44} {nvml:11.2f}\n")
    sys.stdout.write(f"{'only waking up at the same rate':44} {waking:11.2f}\n")
    sys.stdout.write(f"{'together, without NVML alone':44} {sum(of_parts) - nvml:11.2f}\n\n")


def call_nvml(rate: SamplingRate) -> None:
    """Make the NVML calls of the agent, forever."""
    pynvml = importlib.import_module("pynvml")
    pynvml.nvmlInit()
    gpus = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(rate.gpus)]
    counted = rate.every(rate.counter_interval_seconds)
    for number in itertools.count():
        for index, gpu in enumerate(gpus):
            if number % counted == index * counted // len(gpus):
                pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
            pynvml.nvmlDeviceGetPowerUsage(gpu)
            if number % rate.every(1.0) == 0:
                pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu)
                pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_GRAPHICS)
            if number % rate.every(LIMIT_SECONDS) == 0:
                pynvml.nvmlDeviceGetPowerManagementLimit(gpu)
        time.sleep(rate.interval_seconds)


def wake_up(rate: SamplingRate) -> None:
    """Wake up at the sampling rate, forever."""
    while True:
        time.sleep(rate.interval_seconds)


OPTIONS = {"gpus": "--gpus", "interval_seconds": "--interval", "counter_interval_seconds": "--counter-interval"}
PEERS = {"nvml": call_nvml, "wake": wake_up}


def measure_clocks(socket: Path, uuid: str) -> None:
    """Measure the time from a client's request to the response, and that of the same NVML calls."""
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
        devices.put(uuid, GpuSetting.GRAPHICS_CLOCK, 900.0 + 15 * (number % 2))
        alone.append((time.perf_counter() - begin) * 1e3)
    devices.put(uuid, GpuSetting.GRAPHICS_CLOCK, None)
    sys.stdout.write(f"{'one clock locked, ms':32} {'median':>8} {'p99':>8}\n")
    sys.stdout.write(f"{'through the agent':32} {percentiles(through_agent)}\n")
    sys.stdout.write(f"{'NVML alone':32} {percentiles(alone)}\n")


def run_agent(folder: Path, seconds: float, subscribers: int, rate: SamplingRate, *, hardware: bool) -> None:
    """Measure the agent's cost and, on simulated GPUs, its clock requests."""
    environment = {
        **os.environ,
        "WATTLOOP_AGENT_METRICS_BIND": "127.0.0.1:0",
        "WATTLOOP_AGENT_SAMPLE_INTERVAL": str(rate.interval_seconds),
        "WATTLOOP_AGENT_COUNTER_INTERVAL": str(rate.counter_interval_seconds),
        "WATTLOOP_AGENT_LOG_LEVEL": "warning",
    }
    if hardware:
        # No power controller listens on the socket, so nothing can be set.
        environment |= {
            "WATTLOOP_AGENT_PART": "monitor",
            "WATTLOOP_AGENT_POWER_CONTROLLER_SOCKET": str(folder / "none.sock"),
        }
    agent = start_agent(folder / "agent.sock", folder / "state", environment=environment)
    measure_cost(folder / "agent.sock", agent.pid, seconds, subscribers, rate)
    if not hardware:
        with AgentConnection(folder / "agent.sock") as connection:
            uuid = connection.gpus()[0].uuid
        measure_clocks(folder / "agent.sock", uuid)
    stop_agent(agent)


def main() -> int:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--subscribers", type=int, default=1, help="subscribers at the sample interval (default: 1)")
    parser.add_argument("--interval", type=float, default=0.1, metavar="SECONDS", help="sample interval (default: 0.1)")
    parser.add_argument("--counter-interval", type=float, default=0.0, metavar="SECONDS", help="default: each sample")
    parser.add_argument("--hardware", action="store_true", help="this machine's GPUs, with reads only")
    parser.add_argument("--gpus", type=int, default=GPUS, help=f"number of simulated GPUs (default: {GPUS})")
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    rate = SamplingRate(arguments.gpus, arguments.interval, arguments.counter_interval)
    if arguments.peer is not None:
        PEERS[arguments.peer](rate)
    with tempfile.TemporaryDirectory(prefix="wattloop-") as name:
        folder = Path(name)
        if arguments.hardware:
            with Session() as nvml:
                rate = replace(rate, gpus=len(nvml.gpus()))
        else:
            state = nvml_simulator.create(folder / "gpus", model="H100", count=rate.gpus, permission="anyone")
            os.environ |= nvml_simulator.environment(state)
            nvml_simulator.load()
        run_agent(folder, arguments.seconds, arguments.subscribers, rate, hardware=arguments.hardware)
    return 0


if __name__ == "__main__":
    sys.exit(main())
