"""What the node agent costs while it meters, and how long a clock takes from the request to the device.

``python benchmarks/agent.py [--seconds 60]`` prints both tables. The GPUs are eight simulated ones on the wall clock,
read at 10 Hz, with metrics served and one subscriber at 10 Hz. The peer in the same run is NVML alone, called through
the same pynvml: what the readings and the clocks would cost without an agent around them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import nvml_simulator
from wattloop.agent import AgentConnection
from wattloop.agent_process import end_agent, start_agent
from wattloop_agent.reader.nvml_readings import NvmlReadings
from wattloop_agent.setter.lease import Setting
from wattloop_agent.setter.nvml_devices import NvmlDevices

GPUS = 8
INTERVAL_SECONDS = 0.1
CLOCK_REQUESTS = 2000
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


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


def measure_cost(socket: Path, reader: int, seconds: float) -> None:
    """CPU and memory of both processes over the time given, beside NVML's own."""
    (setter,) = children_of(reader)
    stop = threading.Event()

    def subscribe() -> None:
        with AgentConnection(socket) as connection:
            for _ in connection.subscribe(INTERVAL_SECONDS):
                if stop.is_set():
                    return

    subscriber = threading.Thread(target=subscribe)
    subscriber.start()
    before = [cpu_seconds(pid) for pid in (reader, setter)]
    time.sleep(seconds)
    used = [cpu_seconds(pid) - spent for pid, spent in zip((reader, setter), before, strict=True)]
    memory = [memory_megabytes(pid) for pid in (reader, setter)]
    stop.set()
    subscriber.join()
    readings = NvmlReadings()
    readings.conditions()
    begin = time.process_time()
    for _ in range(passes := 200):
        readings.conditions()
    alone = (time.process_time() - begin) / passes / INTERVAL_SECONDS
    sys.stdout.write(f"{GPUS} GPUs at {1 / INTERVAL_SECONDS:g} Hz over {seconds:g} s   % of a core   MB (Pss)\n")
    for name, cpu, megabytes in zip(("reader", "setter"), used, memory, strict=True):
        sys.stdout.write(f"{name:32} {cpu / seconds * 100:11.2f} {megabytes:10.1f}\n")
    sys.stdout.write(f"{'both':32} {sum(used) / seconds * 100:11.2f} {sum(memory):10.1f}\n")
    sys.stdout.write(f"{'NVML alone, the same readings':32} {alone * 100:11.2f}\n\n")


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


def main() -> int:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="wattloop-") as name:
        folder = Path(name)
        state = nvml_simulator.create(folder / "gpus", model="H100", count=GPUS, permission="anyone")
        os.environ |= nvml_simulator.environment(state)
        nvml_simulator.load()
        environment = {
            **os.environ,
            "WATTLOOP_AGENT_METRICS_BIND": "127.0.0.1:0",
            "WATTLOOP_AGENT_SAMPLE_INTERVAL": str(INTERVAL_SECONDS),
            "WATTLOOP_AGENT_LOG_LEVEL": "warning",
        }
        agent = start_agent(folder / "agent.sock", folder / "state", environment=environment)
        measure_cost(folder / "agent.sock", agent.pid, seconds)
        with AgentConnection(folder / "agent.sock") as connection:
            uuid = connection.gpus()[0].uuid
        measure_clocks(folder / "agent.sock", uuid)
        end_agent(agent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
