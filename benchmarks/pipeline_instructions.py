"""Cost of a pipeline's instruction to the training, and time from its end until the next clock is set.

``python benchmarks/pipeline_instructions.py [--instructions 2000] [--gpus 1 8] [--seconds 0.005]`` prints, for each
number of GPUs of the process, median, mean and 99th percentile in microseconds of five paths, which take turns every
200 instructions in one run, and the ratio of each number to that of the bare write:

- with change: ``with pipeline.instruction(…)`` under a plan whose clock differs at every instruction;
- without change: the same under a plan with one clock;
- hold_clocks: the clock of each instruction by a request that waits for the answer;
- agent write: the bytes of such a request to the agent's socket, ready before, and nothing else;
- bare write: 200 bytes to a process that reads them, the least that a message to another process costs.

The cost is the time that the training thread spends beside the instruction's own work; the latency is the time from
the end of the work until the simulated library has set the clock of the last GPU, by the library's own record. The
GPUs are simulated, on the wall clock, busy during each instruction, and metered by the agent at 10 Hz.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nvml_simulator
from nvml_simulator.models import model_named
from wattloop.errors import OperationError
from wattloop.gpus.agent import AgentConnection, ClockStream
from wattloop.gpus.agent_process import start_agent, stop_agent
from wattloop.pipeline import Pipeline

MODEL = "H100"
GPUS = 8
CLOCKS = (900, 1200)
INSTRUCTIONS_PER_ROUND = 200
MICROSECONDS = 1e6
TIMEOUT_SECONDS = 60.0
WITH_CHANGE, WITHOUT_CHANGE, HOLD_CLOCKS = "with change", "without change", "hold_clocks"
AGENT_WRITE, BARE_WRITE = "agent write", "bare write"
Work = Callable[[], None]


@dataclass
class PathTimes:
    """One path: what it costs the training, and when the work of each instruction ended."""

    costs_seconds: list[float] = field(default_factory=list)
    latencies_seconds: list[float] = field(default_factory=list)


def run_pipeline(pipeline: Pipeline, work: Work, ends: list[float], costs: list[float]) -> None:
    """One iteration of a pipeline."""
    now = time.monotonic
    with pipeline.iteration():
        for microbatch in range(INSTRUCTIONS_PER_ROUND):
            begin = now()
            instruction = pipeline.instruction("forward", microbatch=microbatch)
            instruction.__enter__()
            began = now()
            work()
            end = now()
            instruction.__exit__(None, None, None)
            costs.append(now() - end + began - begin)
            ends.append(end)


def run_requests(
    agent: AgentConnection, uuids: Sequence[str], work: Work, ends: list[float], costs: list[float]
) -> None:
    """As many instructions, each with a request at its end."""
    now = time.monotonic
    for _, clock in zip(range(INSTRUCTIONS_PER_ROUND), itertools.cycle(reversed(CLOCKS)), strict=False):
        work()
        end = now()
        agent.hold_clocks(uuids, clock)
        costs.append(now() - end)
        ends.append(end)


def run_writes(send: Callable[[bytes], int], lines: Sequence[bytes], work: Work, costs: list[float]) -> None:
    """As many instructions, each with one of some messages to another process at its end."""
    now = time.monotonic
    for _, line in zip(range(INSTRUCTIONS_PER_ROUND), itertools.cycle(lines), strict=False):
        work()
        end = now()
        send(line)
        costs.append(now() - end)


@contextlib.contextmanager
def reading_process() -> Iterator[socket.socket]:
    """A socket to a process that reads what is sent."""
    sending, receiving = socket.socketpair()
    # The reader ends when the socket is closed, so the socket is closed first.
    with subprocess.Popen(["cat"], stdin=receiving.fileno(), stdout=subprocess.DEVNULL), sending:
        receiving.close()
        yield sending


def latencies(machine: nvml_simulator.Machine, gpus: int, ends: Sequence[float]) -> list[float]:
    """Seconds from each end to the next change of all GPUs, of those ends before which the clock was set."""
    offset = time.monotonic() - machine.clock_seconds()
    changes = [
        sorted(each.time_seconds + offset for each in machine.clock_settings(gpu) if each.megahertz is not None)
        for gpu in range(gpus)
    ]
    found = []
    for end, following in itertools.pairwise([*ends, time.monotonic()]):
        set_at = [[at for at in times if end <= at < following] for times in changes]
        if all(set_at):
            found.append(max(times[0] for times in set_at) - end)
    return found


@contextlib.contextmanager
def prepared_pipeline(path: Path, gpus: int, different: Sequence[int] = CLOCKS) -> Iterator[Pipeline]:
    """A pipeline of one rank under a plan, after the iteration in which the agent begins to hold its clocks."""
    clocks = [clock for _, clock in zip(range(INSTRUCTIONS_PER_ROUND), itertools.cycle(different), strict=False)]
    with Pipeline(
        stage=0,
        stages=1,
        microbatches=INSTRUCTIONS_PER_ROUND,
        plan=clocks,
        instructions=[f"forward:0:{microbatch}" for microbatch in range(INSTRUCTIONS_PER_ROUND)],
        gpus=list(range(gpus)),
        environment={"WATTLOOP_AGENT_SOCKET": str(path)},
    ) as pipeline:
        run_pipeline(pipeline, lambda: time.sleep(0.005), [], [])
        if pipeline.refusal:
            raise OperationError(pipeline.refusal)
        yield pipeline


def measure(
    machine: nvml_simulator.Machine, path: Path, gpus: int, instructions: int, seconds: float
) -> dict[str, PathTimes]:
    """Costs and latencies of all paths, in turns."""
    teraflops = model_named(MODEL).teraflops_per_second * seconds * 0.9
    chosen = list(range(gpus))

    def work() -> None:
        machine.occupy(chosen, work=teraflops, intensity=0.8)

    found = {name: PathTimes() for name in (WITH_CHANGE, WITHOUT_CHANGE, HOLD_CLOCKS, AGENT_WRITE, BARE_WRITE)}
    uuids = [gpu.uuid for gpu in machine.describe().gpus][:gpus]
    for _ in range(max(instructions // INSTRUCTIONS_PER_ROUND, 1)):
        ends: list[float] = []
        with prepared_pipeline(path, gpus) as pipeline:
            run_pipeline(pipeline, work, ends, found[WITH_CHANGE].costs_seconds)
            time.sleep(0.02)
            found[WITH_CHANGE].latencies_seconds += latencies(machine, gpus, ends)
        with prepared_pipeline(path, gpus, CLOCKS[:1]) as pipeline:
            run_pipeline(pipeline, work, [], found[WITHOUT_CHANGE].costs_seconds)
        ends = []
        with AgentConnection(path) as agent:
            agent.hold_clocks(uuids, CLOCKS[0])
            run_requests(agent, uuids, work, ends, found[HOLD_CLOCKS].costs_seconds)
            found[HOLD_CLOCKS].latencies_seconds += latencies(machine, gpus, ends)
            agent.release(uuids)
        with contextlib.closing(ClockStream(path, uuids, TIMEOUT_SECONDS)) as stream:
            stream.hold(stream.request(CLOCKS[0]))
            lines = [stream.request(clock) for clock in reversed(CLOCKS)]
            run_writes(stream.send, lines, work, found[AGENT_WRITE].costs_seconds)
            stream.release()
        with reading_process() as connection:
            run_writes(connection.send, [b"x" * 200], work, found[BARE_WRITE].costs_seconds)
    return found


def numbers(times: Sequence[float]) -> tuple[float, float, float]:
    """Median, mean and 99th percentile."""
    ordered = sorted(times)
    return statistics.median(ordered), statistics.fmean(ordered), ordered[int(len(ordered) * 0.99)]


def show(found: dict[str, PathTimes], gpus: int) -> None:
    """Print a table, in microseconds, with the ratios to the bare write."""
    head = " ".join(f"{name:>9}" for name in ("median", "mean", "p99"))
    sys.stdout.write(f"{f'{gpus} GPUs, µs':16} {'':8} {head} {'number':>8}   ratio to the bare write\n")
    bare = numbers(found[BARE_WRITE].costs_seconds)
    for name, path in found.items():
        for what, times in (("cost", path.costs_seconds), ("latency", path.latencies_seconds)):
            if not times:
                continue
            values = numbers(times)
            cells = " ".join(f"{value * MICROSECONDS:9.1f}" for value in values)
            ratios = " ".join(f"{value / least:7.2f}" for value, least in zip(values, bare, strict=True))
            sys.stdout.write(f"{name:16} {what:8} {cells} {len(times):8}   {ratios if what == 'cost' else ''}\n")
    sys.stdout.write("\n")


def main() -> int:
    """Measure all paths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instructions", type=int, default=2000, help="number on each path (default: 2000)")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, GPUS], help="GPUs of the process (default: 1 8)")
    parser.add_argument("--seconds", type=float, default=0.005, help="time of an instruction (default: 0.005)")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wattloop-")))
        state = nvml_simulator.create(folder / "gpus", model=MODEL, count=GPUS, permission="anyone")
        machine = stack.enter_context(nvml_simulator.Machine(state))
        environment = {
            **os.environ,
            **nvml_simulator.environment(state),
            "WATTLOOP_AGENT_METRICS_BIND": "127.0.0.1:0",
            "WATTLOOP_AGENT_SAMPLE_INTERVAL": "0.1",
            "WATTLOOP_AGENT_LOG_LEVEL": "warning",
        }
        path = folder / "agent.sock"
        agent = start_agent(path, folder / "state", environment=environment, log=folder / "agent.log")
        stack.callback(stop_agent, agent)
        for gpus in arguments.gpus:
            show(measure(machine, path, gpus, arguments.instructions, arguments.seconds), gpus)
    return 0


if __name__ == "__main__":
    sys.exit(main())
