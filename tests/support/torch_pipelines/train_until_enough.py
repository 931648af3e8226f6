"""The example of examples/pipeline in a pod, with four microbatches, until a test has seen enough.

It trains until the file `trained-enough` is beside the state of the simulated GPUs. Time and energy of
instructions come from the records of the simulated GPU, since on its virtual clock the counters, which
advance by seconds at once, tell no instructions apart. All else is the example's: its ranks register,
measure at the clocks that the plan service names, and run its plan.
"""

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import train

import nvml_simulator
from wattloop.integrations.torch_pipelining import attach
from wattloop.pipeline import Pipeline
from wattloop.pipeline.clock_profiling import Profiling
from wattloop.pipeline.iteration_energy import PlanComparison
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.plan_messages import PROFILE, Directive, InstructionMeasurement, RankReport

ENOUGH = "trained-enough"
MICROBATCHES = 4
# Virtual time does not pass meanwhile. Without the pause, the training would keep the machine busy.
STEP_SECONDS = 0.3
RELATIVE_ERROR = 1e-4


class SimulatorMeter:
    """Measures a rank as its simulated GPU does: exactly. An `Observer`."""

    def __init__(self) -> None:
        self._machine = nvml_simulator.machine()
        uuids = sorted(os.environ["NVIDIA_VISIBLE_DEVICES"].split(","), key=self._machine.index)
        self._gpu = uuids[int(os.environ["LOCAL_RANK"])]
        self._waiting_watts = nvml_simulator.model_named("A100").waiting_watts
        self._lock = threading.Lock()
        self._profiling: Profiling | None = None
        self._profiled = False
        self._measured: dict[tuple[str, int, int], InstructionMeasurement] = {}
        self._directive = 0
        # Seconds and joules at the end of each iteration.
        self._ends: list[tuple[float, float]] = []
        # Number of iterations after the first one under the directive that were not at free clocks, their seconds and
        # joules.
        self._totals = (0, 0.0, 0.0)
        self._comparison: PlanComparison | None = None

    def profiling_clock(self, directive: Directive, iteration: int) -> int | None:
        profiling = Profiling(directive)
        with self._lock:
            self._profiling, self._profiled = profiling, profiling.is_finished(iteration)
        return profiling.clock(iteration)

    def iteration_done(self, record: IterationRecord) -> None:
        joules = self._machine.describe_gpu(self._gpu).energy_microjoules / 1e6
        with self._lock:
            self._ends.append((record.end_seconds, joules))
            directive = record.directive
            if directive.number != self._directive:
                self._directive, self._totals, self._comparison = directive.number, (0, 0.0, 0.0), None
                if directive.free is not None:
                    first = directive.first_iteration or 0
                    self._comparison = PlanComparison(directive.free, first, self._joules_between)
            elif len(self._ends) > 1 and self._counts(record):
                (begin, before), (end, after) = self._ends[-2:]
                count, seconds, total = self._totals
                self._totals = count + 1, seconds + end - begin, total + after - before
            if self._comparison is not None:
                self._comparison.add(record)
            if directive.mode == PROFILE and self._profiling and self._profiling.is_measured(record.number):
                self._measure(record)

    @staticmethod
    def _counts(record: IterationRecord) -> bool:
        """Whether an iteration runs as its directive says: under a plan, not at free clocks nor first after them."""
        directive = record.directive
        if directive.free is None:
            return True
        part = directive.free.part(record.number - (directive.first_iteration or 0))
        return part.is_measured and not part.is_free

    def _joules_between(self, begin_seconds: float, end_seconds: float) -> float:
        seconds, joules = zip(*self._ends, strict=True)
        begin, end = np.interp([begin_seconds, end_seconds], seconds, joules)
        return float(end - begin)

    def _measure(self, record: IterationRecord) -> None:
        works = self._machine.work_records(self._gpu)[-len(record.instructions) :]
        for instruction, work in zip(record.instructions, works, strict=True):
            kind, stage, clock = instruction.kind, instruction.stage, work.graphics_clock_megahertz
            seconds = work.end_seconds - work.begin_seconds
            joules = (work.end_microjoules - work.begin_microjoules) / 1e6
            before = self._measured.get((kind, stage, clock))
            self._measured[kind, stage, clock] = InstructionMeasurement(
                kind,
                stage,
                clock,
                1 + (before.repetitions if before else 0),
                seconds,
                RELATIVE_ERROR * seconds,
                joules,
                RELATIVE_ERROR * joules,
            )

    def measured(self, report: RankReport) -> RankReport:
        with self._lock:
            count, seconds, joules = self._totals
            if self._comparison is not None:
                self._comparison.collect()
            return replace(
                report,
                measured_iterations=count,
                iteration_seconds=seconds / count if count else None,
                iteration_joules=joules / count if count else None,
                blocking_watts=self._waiting_watts if self._measured else None,
                measurements=tuple(self._measured.values()),
                profiled=self._profiled,
                compared=() if self._comparison is None else self._comparison.groups,
            )

    def close(self) -> None:
        """See `Observer`."""


def attached(schedule: Any, **options: Any) -> Pipeline:
    """`attach`, measured by the simulator."""
    pipeline = attach(schedule, **options)
    pipeline.observe(SimulatorMeter())
    return pipeline


def until_enough(_steps: int) -> Iterator[int]:
    """Steps of an epoch until a rank has seen the file: all ranks run equally many."""
    enough = nvml_simulator.machine().path.parent / ENOUGH
    step = 0
    while True:
        time.sleep(STEP_SECONDS)
        seen = torch.tensor(int(enough.exists()))
        dist.all_reduce(seen, dist.ReduceOp.MAX)
        if seen:
            return
        yield step
        step += 1


if __name__ == "__main__":
    train.MICROBATCHES, train.attach, train.range = MICROBATCHES, attached, until_enough
    train.main()
