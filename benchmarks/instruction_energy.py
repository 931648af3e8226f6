"""Time and energy of a pipeline's instructions by regression: repeatability, and accuracy beside the naive way.

``python benchmarks/instruction_energy.py --nvml-library system`` measures forward and backward of a transformer layer
on this machine's GPU 0. It needs PyTorch with CUDA and pynvml (``nvidia-ml-py``). It only reads: clocks and power
limits stay as they are. Without the option a simulated GPU runs instead, whose exact energy is known. It prints JSON
on stdout, and takes about four minutes.

An iteration is that of stage 1 of 4 in the order of 1F1B, with 8 microbatches; where the stage waits for another one,
the GPU spins in a kernel, as in NCCL's receive. Each of the repeats gives time, energy and interval of an instruction,
as `wattloop.pipeline` measures it: from stamps, and readings of the energy counter every 67 ms.

- ``repeatability``: the standard deviation over repeats, beside the mean stated standard error.
- ``reference``: the same instruction, or the wait, again and again for some seconds, by an energy window. A real GPU
  is hotter then, or throttles more, than among pauses, so a difference is not an error alone.
- ``exact``: energy of an instruction by the simulator; null on a real GPU.
- ``naive``: the counter's difference around each instruction.
- ``cpu``: CPU time of the regression by reading of the counter, beside that of the reading's own bookkeeping.
- ``lags``: the regression's residual if the counter's energy were that of so many seconds before.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pynvml

from wattloop import EnergyMonitor
from wattloop.energy.energy_timeline import EnergyTimeline
from wattloop.energy.gpu_reading import GpuReading
from wattloop.energy_monitor.process_sampler import ProcessSampler, process_sampler
from wattloop.energy_monitor.readings import INTERVAL_SECONDS
from wattloop.energy_monitor.sources import FirstAvailable
from wattloop.gpus.nvml import Session
from wattloop.pipeline.activities import ActivityHistory, filled_spans, instruction_spans
from wattloop.pipeline.energy_regression import PowerRegression, rows
from wattloop.pipeline.instruction import Instruction
from wattloop.pipeline.instruction_measurements import ProcessMeasurements
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.plan_messages import Directive

STAGE, STAGES, MICROBATCHES = 1, 4, 8
LAGS_SECONDS = tuple(step * 0.005 for step in range(-4, 21))
WARM_UP_SECONDS = 5.0
SETTLING_SECONDS = 1.5


class Work(Protocol):
    """What runs on the GPU; each call returns when the GPU is done."""

    name: str

    def forward(self) -> None:
        """A forward pass of a microbatch."""

    def backward(self) -> None:
        """The backward pass of the oldest microbatch without one."""

    def backward_again(self) -> None:
        """The backward pass of the oldest microbatch, which stays."""

    def forget(self) -> None:
        """Forget the microbatches without a backward pass."""

    def spin(self, seconds: float) -> None:
        """Wait as in a receive."""

    def step(self) -> None:
        """The optimizer's step."""

    def exact_joules(self) -> float | None:
        """The exact energy so far; None if it is not known."""


class TransformerLayer:
    """A transformer layer in bfloat16.

    Args:
        width: Model dimension.
        tokens: Tokens of a sequence.
        sequences: Sequences of a microbatch.
    """

    def __init__(self, width: int, tokens: int, sequences: int) -> None:
        import torch  # noqa: PLC0415

        self._torch: Any = torch
        self.name = f"PyTorch {torch.__version__}, transformer layer of width {width}, {sequences} × {tokens} tokens"
        torch.manual_seed(0)
        self._layer = torch.nn.TransformerEncoderLayer(
            width, max(width // 128, 1), 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        ).to("cuda", torch.bfloat16)
        self._input = torch.randn(sequences, tokens, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        self._gradient = torch.randn_like(self._input)
        self._outputs: list[Any] = []
        self._optimizer = torch.optim.SGD(self._layer.parameters(), lr=1e-9)
        self._cycles_per_second = 1.5e9
        for _ in range(2):
            begin = time.monotonic()
            self.spin(0.2)
            self._cycles_per_second *= 0.2 / (time.monotonic() - begin)

    def forward(self) -> None:
        """See `Work`."""
        self._outputs.append(self._layer(self._input))
        self._torch.cuda.synchronize()

    def backward(self) -> None:
        """See `Work`."""
        self._outputs.pop(0).backward(self._gradient)
        self._torch.cuda.synchronize()

    def backward_again(self) -> None:
        """See `Work`."""
        self._outputs[0].backward(self._gradient, retain_graph=True)
        self._torch.cuda.synchronize()

    def forget(self) -> None:
        """See `Work`."""
        self._outputs.clear()

    def spin(self, seconds: float) -> None:
        """See `Work`."""
        self._torch.cuda._sleep(int(seconds * self._cycles_per_second))
        self._torch.cuda.synchronize()

    def step(self) -> None:
        """See `Work`."""
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._input.grad = None
        self._torch.cuda.synchronize()

    def exact_joules(self) -> None:
        """See `Work`."""


class SimulatedWork:
    """Instructions of a simulated GPU in real time."""

    name = "simulated"

    def __init__(self, machine: Any, teraflops_per_second: float, forward_seconds: float) -> None:
        self._machine = machine
        self._speed = teraflops_per_second
        self._forward_seconds = forward_seconds

    def forward(self) -> None:
        """See `Work`."""
        self._machine.occupy(0, self._speed * self._forward_seconds, 0.55)

    def backward(self) -> None:
        """See `Work`."""
        self._machine.occupy(0, self._speed * 2 * self._forward_seconds, 0.7)

    def backward_again(self) -> None:
        """See `Work`."""
        self.backward()

    def forget(self) -> None:
        """See `Work`."""

    def spin(self, seconds: float) -> None:
        """See `Work`."""
        self._machine.occupy(0, self._speed * seconds, 0.0)

    def step(self) -> None:
        """See `Work`."""
        self._machine.occupy(0, self._speed * 0.005, 0.3)

    def exact_joules(self) -> float:
        """See `Work`."""
        joules: float = self._machine.describe().gpus[0].energy_microjoules / 1e6
        return joules


@contextlib.contextmanager
def work_on(arguments: argparse.Namespace) -> Iterator[Callable[[], Work]]:
    """Makes the work, on simulated GPUs or on the machine's, once NVML is set."""
    if arguments.nvml_library != "simulated":
        if arguments.nvml_library != "system":
            os.environ["WATTLOOP_NVML_LIBRARY"] = arguments.nvml_library
        yield lambda: TransformerLayer(arguments.width, arguments.tokens, arguments.sequences)
        return
    import nvml_simulator  # noqa: PLC0415
    from nvml_simulator.compilation import build_library  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="wattloop-benchmark-") as folder:
        state = nvml_simulator.create(Path(folder) / "gpus", model="H200", count=1, clock="wall", permission="anyone")
        os.environ |= {nvml_simulator.STATE_VARIABLE: str(state), "WATTLOOP_NVML_LIBRARY": str(build_library())}
        nvml_simulator.load()
        with nvml_simulator.Machine(state) as machine:
            speed = nvml_simulator.model_named("H200").teraflops_per_second
            yield lambda: SimulatedWork(machine, speed, arguments.forward_seconds)


def run(work: Work, kind: str) -> None:
    """Run an instruction."""
    if kind == "forward":
        work.forward()
    else:
        work.backward()


def order() -> list[Instruction]:
    """The instructions of an iteration of 1F1B."""
    ahead = STAGES - STAGE - 1
    kinds = ["forward"] * ahead + ["forward", "backward"] * (MICROBATCHES - ahead) + ["backward"] * ahead
    counts = {"forward": 0, "backward": 0}
    found = []
    for kind in kinds:
        found.append(Instruction(kind, STAGE, counts[kind]))
        counts[kind] += 1
    return found


def iteration(work: Work, number: int, instructions: list[Instruction], forward_seconds: float) -> IterationRecord:
    """One training step with its stamps."""
    ahead = STAGES - STAGE - 1
    begin = time.monotonic()
    work.spin(STAGE * forward_seconds)
    stamps = array("d")
    for position, instruction in enumerate(instructions):
        if position == ahead + 1:
            work.spin(ahead * 3 * forward_seconds)
        elif position >= len(instructions) - ahead:
            work.spin(forward_seconds)
        stamps.append(time.monotonic())
        run(work, instruction.kind)
        stamps.append(time.monotonic())
    work.step()
    return IterationRecord(number, Directive(), tuple(instructions), (), begin, time.monotonic(), stamps)


def repeat(work: Work, seconds: float, forward_seconds: float) -> list[IterationRecord]:
    """Iterations for so long, and then a pause in which the counter's last steps are read."""
    instructions, records, end = order(), [], time.monotonic() + seconds
    while time.monotonic() < end:
        records.append(iteration(work, len(records), instructions, forward_seconds))
    time.sleep(SETTLING_SECONDS)
    return records


def measured(sampler: ProcessSampler, records: list[IterationRecord], first_edge: int) -> dict[str, Any]:
    """Time and energy by the product's own code."""
    uuid = sampler.uuids[0]
    found = ProcessMeasurements(
        [lambda first, final: sampler.edges(uuid, max(first, first_edge), final=final)], first_rank=False
    )
    for record in records:
        found.add(record)
    found.end_phase()
    found.collect(math.inf)
    blocking = found.blocking()
    result: dict[str, Any] = {
        each.kind: {
            "repetitions": each.repetitions,
            "time_seconds": each.time_seconds,
            "time_error_seconds": each.time_error_seconds,
            "energy_joules": each.energy_joules,
            "energy_error_joules": each.energy_error_joules,
        }
        for each in found.measurements()
    }
    result["blocking_watts"] = None if blocking is None else blocking.value
    result["blocking_error_watts"] = None if blocking is None else blocking.error
    return result


def residuals(sampler: ProcessSampler, records: list[IterationRecord], first_edge: int) -> dict[str, Any]:
    """The regression if the counter were late by each of some lags, and if its steps were joined in pairs."""
    history = ActivityHistory()
    for record in records:
        for span in filled_spans(record, instruction_spans(record), first_rank=False):
            history.add(span)
    edges = sampler.edges(sampler.uuids[0], first_edge, final=False)
    found = []
    for lag in LAGS_SECONDS:
        regression = PowerRegression()
        for row in rows([replace(edge, seconds=edge.seconds - lag) for edge in edges], history):
            regression.add(row)
        powers = regression.solved()
        if powers is not None:
            watts = {activity.kind: round(powers.watts[number], 2) for activity, number in powers.numbers.items()}
            found.append({"lag_seconds": round(lag, 4), "residual_joules": powers.residual_joules, "watts": watts})
    best = min(found, key=lambda each: each["residual_joules"], default=None)
    periodic = sum(edge.periodic for edge in edges)
    gaps = [after.seconds - before.seconds for before, after in itertools.pairwise(edges)]
    return {
        "best": best,
        "residual_by_lag": {str(each["lag_seconds"]): round(each["residual_joules"], 4) for each in found},
        # None where the regression cannot tell the instructions apart, as with iterations shorter than a step.
        "without_lag": next((each for each in found if each["lag_seconds"] == 0), None),
        "edges": len(edges),
        "periodic_edges": periodic,
        "median_step_seconds": statistics.median(gaps) if gaps else None,
        "mean_edge_deviation_seconds": statistics.fmean(edge.deviation_seconds for edge in edges) if edges else None,
    }


def reference(monitor: EnergyMonitor, repeated: Callable[[], None], seconds: float) -> dict[str, float]:
    """The mean of the same work again and again."""
    for _ in range(3):
        repeated()
    count, end = 0, time.monotonic() + seconds
    monitor.begin_window("reference")
    while time.monotonic() < end:
        repeated()
        count += 1
    window = monitor.end_window("reference")
    energy, error = window.total_energy_joules / count, window.uncertainty_joules / count
    return {
        "repetitions": count,
        "time_seconds": window.time_seconds / count,
        "energy_joules": energy,
        "energy_error_joules": error,
        "watts": window.total_energy_joules / window.time_seconds,
    }


def naive(work: Work, seconds: float, forward_seconds: float) -> dict[str, Any]:
    """The counter read before and after each instruction."""
    found: dict[str, list[float]] = {"forward": [], "backward": []}
    calls = []
    with Session() as nvml:
        gpu, end = nvml.gpus()[0], time.monotonic() + seconds
        while time.monotonic() < end:
            for kind, values in found.items():
                begin = time.monotonic()
                before = gpu.energy_millijoules()
                calls.append(time.monotonic() - begin)
                run(work, kind)
                values.append((gpu.energy_millijoules() - before) / 1e3)
            work.spin(forward_seconds)
    return {
        kind: {"energy_joules": statistics.fmean(values), "deviation_joules": statistics.pstdev(values)}
        for kind, values in found.items()
    } | {"median_call_seconds": statistics.median(calls)}


def repeatability(repeats: list[dict[str, Any]], kind: str, value: str, error: str) -> dict[str, float | None]:
    """Relative deviation of a value over repeats, and the mean relative error that was stated."""
    known = [each[kind] for each in repeats if each.get(kind) and each[kind][value] is not None]
    values = [each[value] for each in known]
    if len(values) < 2:
        return {"mean": None, "relative_deviation": None, "relative_stated_error": None}
    mean = statistics.fmean(values)
    stated = statistics.fmean(each[error] for each in known)
    return {"mean": mean, "relative_deviation": statistics.stdev(values) / mean, "relative_stated_error": stated / mean}


def exact(work: Work) -> dict[str, float] | None:
    """Energy of an instruction, and blocking power, by the simulator."""
    before = work.exact_joules()
    if before is None:
        return None
    found = {}
    for kind, repeated in (
        ("forward", work.forward),
        ("backward", work.backward),
        ("blocking", lambda: work.spin(1.0)),
    ):
        begin = work.exact_joules() or 0.0
        for _ in range(5 if kind != "blocking" else 1):
            repeated()
        joules = (work.exact_joules() or 0.0) - begin
        found[kind] = joules / 5 if kind != "blocking" else joules
    return found


def cpu(sampler: ProcessSampler, records: list[IterationRecord], first_edge: int) -> dict[str, float]:
    """CPU time of the measurement by reading, beside that of a timeline which takes the same number of readings."""
    readings = (records[-1].end_seconds - records[0].begin_seconds) / INTERVAL_SECONDS
    begin = time.thread_time()
    measured(sampler, records, first_edge)
    measuring = time.thread_time() - begin
    timeline = EnergyTimeline()
    begin = time.thread_time()
    for number in range(int(readings)):
        moment = number * INTERVAL_SECONDS
        timeline.add(GpuReading("GPU-1", moment, moment + 0.003, int(moment / 0.1) * 30_000, 300.0))
    keeping = time.thread_time() - begin
    return {
        "microseconds_per_reading": measuring / readings * 1e6,
        "ratio_to_keeping_a_reading": measuring / keeping,
        "instructions_per_reading": sum(len(each.instructions) for each in records) / readings,
    }


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvml-library", default="simulated", help="simulated, system, or a path")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0, help="of a repeat (default: 30)")
    parser.add_argument("--reference-seconds", type=float, default=6.0)
    parser.add_argument("--width", type=int, default=4096, help="of a real layer")
    parser.add_argument("--tokens", type=int, default=2048, help="of a sequence")
    parser.add_argument("--sequences", type=int, default=8, help="of a microbatch")
    parser.add_argument("--forward-seconds", type=float, default=0.02, help="of a simulated instruction")
    arguments = parser.parse_args()
    with work_on(arguments) as make:
        result = benchmark(make(), arguments)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")


def benchmark(work: Work, arguments: argparse.Namespace) -> dict[str, Any]:
    """All measurements."""
    monitor = EnergyMonitor(gpus=[0])
    sampler = process_sampler.get(FirstAvailable, monitor)
    forward_seconds = warmed_up(work)
    repeats, lags = [], []
    for _ in range(arguments.repeats):
        known = sampler.edges(sampler.uuids[0], 0, final=False)
        first_edge = known[-1].number + 1 if known else 0
        records = repeat(work, arguments.seconds, forward_seconds)
        found = measured(sampler, records, first_edge)
        found["iterations"] = len(records)
        found["iteration_seconds"] = statistics.fmean(each.end_seconds - each.begin_seconds for each in records)
        repeats.append(found)
        lags.append(residuals(sampler, records, first_edge))
        sys.stderr.write(f"{json.dumps(found)}\n")
    cost = cpu(sampler, records, first_edge)
    with Session() as nvml:
        device = {"gpu": nvml.gpus()[0].name, "driver": pynvml.nvmlSystemGetDriverVersion()}
    return {
        **device,
        "work": work.name,
        "arguments": vars(arguments),
        "repeats": repeats,
        "repeatability": {
            kind: {
                "energy": repeatability(repeats, kind, "energy_joules", "energy_error_joules"),
                "time": repeatability(repeats, kind, "time_seconds", "time_error_seconds"),
            }
            for kind in ("forward", "backward")
        },
        "reference": references(work, monitor, arguments.reference_seconds),
        "exact": exact(work),
        "naive": naive(work, arguments.reference_seconds, forward_seconds),
        "cpu": cost,
        "lags": lags,
    }


def warmed_up(work: Work) -> float:
    """Warm up; returns the time of a forward pass."""
    times, end = [], time.monotonic() + WARM_UP_SECONDS
    while time.monotonic() < end:
        begin = time.monotonic()
        work.forward()
        times.append(time.monotonic() - begin)
        work.backward()
    return statistics.median(times)


def references(work: Work, monitor: EnergyMonitor, seconds: float) -> dict[str, dict[str, float]]:
    """Each instruction, and the wait, alone."""

    def forward_alone() -> None:
        work.forward()
        work.forget()

    work.forward()
    found = {
        "backward": reference(monitor, work.backward_again, seconds),
        "blocking": reference(monitor, lambda: work.spin(0.05), seconds),
    }
    work.forget()
    found["forward"] = reference(monitor, forward_alone, seconds)
    return found


if __name__ == "__main__":
    main()
