"""A training of two pipeline ranks on simulated GPUs, whose plan is compared with free clocks; a program.

Rank 0 decides after each iteration whether the training goes on. All else is what a user's script does: the ranks
register, run what the plan service says, and the clients measure time and energy by the GPUs' counters.

The variable TEST has, as JSON, for each recurrence: the seconds of a forward of each stage at the highest clock, and
when the training ends. The profile is not measured, which takes minutes, but is exactly that of the simulated GPUs,
unless `measures_profile` is true. Each rank writes down its iterations, with the exact energy of its GPU at the end.
"""

import json
import os
import struct
import sys
from dataclasses import replace
from pathlib import Path

import nvml_simulator
import wattloop
from wattloop.pipeline import Pipeline
from wattloop.pipeline.iteration_record import IterationRecord, Observer
from wattloop.pipeline.plan_messages import FREE, PLAN, Directive, InstructionMeasurement, RankReport

STAGES, MICROBATCHES = 2, 4
MODEL = nvml_simulator.model_named("A100")
# Work of a kind of instruction in forwards, and its intensity.
KINDS = {"forward": (1.0, 0.6), "backward": (2.0, 0.75)}
MAX_ITERATIONS = 2_000
FREE_ITERATIONS = 30
WITHDRAWN = "the plan is withdrawn"


class Measured:
    """The pipeline's own meter, but for the profile, which the power curve of the GPU gives. An `Observer`."""

    def __init__(self, meter: Observer, stage: int, forward_seconds: float, *, measures_profile: bool) -> None:
        self._meter = meter
        self._stage = stage
        self._forward_seconds = forward_seconds
        self._measures_profile = measures_profile
        self._clocks: tuple[int, ...] = ()
        self._machine = nvml_simulator.machine()
        self.iterations: list[dict[str, object]] = []
        self.planned = self.withdrawn = self.cycles = 0

    def profiling_clock(self, directive: Directive, iteration: int) -> int | None:
        if self._measures_profile:
            return self._meter.profiling_clock(directive, iteration)
        self._clocks = directive.clocks_megahertz
        return None

    def iteration_done(self, record: IterationRecord) -> None:
        directive = record.directive
        self.planned += directive.mode == PLAN
        self.withdrawn += directive.mode == FREE and directive.reason.startswith(WITHDRAWN)
        if directive.mode == PLAN and directive.free is not None:
            self.cycles = directive.free.part(record.number - (directive.first_iteration or 0)).cycle
        gpu = self._machine.describe_gpu(self._stage)
        self.iterations.append(
            {
                "number": record.number,
                "mode": directive.mode,
                "is_free": not record.clocks_megahertz,
                "locked": gpu.locked_graphics_clocks_megahertz,
                "end_seconds": record.end_seconds,
                "microjoules": gpu.energy_microjoules,
            }
        )
        self._meter.iteration_done(record)

    def measured(self, report: RankReport) -> RankReport:
        found = self._meter.measured(report)
        if not self._clocks:
            return found
        rows = tuple(
            _measurement(kind, self._stage, clock, self._forward_seconds) for clock in self._clocks for kind in KINDS
        )
        return replace(found, blocking_watts=MODEL.waiting_watts, measurements=rows, profiled=True)

    def close(self) -> None:
        self._meter.close()

    def is_over(self, until: str) -> bool:
        """Whether the training has shown enough."""
        return {
            "planned": self.planned >= 2,
            "compared": self.cycles >= 7,
            "short": self.cycles >= 2,
            "withdrawn": self.withdrawn >= FREE_ITERATIONS,
        }[until]


def _measurement(kind: str, stage: int, clock: int, forward_seconds: float) -> InstructionMeasurement:
    share, intensity = KINDS[kind]
    watts, speed = nvml_simulator.busy_power_and_throughput(MODEL, clock, intensity)
    seconds = share * forward_seconds * MODEL.teraflops_per_second / speed
    return InstructionMeasurement(kind, stage, clock, 20, seconds, 1e-4 * seconds, watts * seconds, 1e-4 * seconds)


def train(stage: int, read: int, write: int) -> None:
    """Train as one of the ranks.

    Args:
        read: A pipe from the other rank.
        write: A pipe to the other rank.
    """
    test = json.loads(os.environ["TEST"])
    run = wattloop.Run(batch_size=64, max_epochs=1)
    recurrence = int(os.environ["WATTLOOP_RECURRENCE"].split("-")[1])
    loads, until = test["recurrences"][recurrence]
    pipeline = Pipeline(stage=stage, stages=STAGES, microbatches=MICROBATCHES, run=run)
    pipeline.open()
    meter = pipeline._messages.observer
    assert meter is not None
    measured = Measured(meter, stage, loads[stage], measures_profile=test["measures_profile"])
    pipeline.observe(measured)
    with run:
        for _ in run.epochs():
            for _ in range(MAX_ITERATIONS):
                if not _goes_on(stage, read, write, goes_on=not measured.is_over(until)):
                    break
                with pipeline.iteration():
                    for kind, microbatch in order_of(stage):
                        _instruction(pipeline, stage, kind, microbatch, loads[stage], (read, write))
            run.report(metric=1.0)
    pipeline.close()
    Path(f"iterations-{recurrence}-{stage}.json").write_text(json.dumps(measured.iterations))


def order_of(stage: int) -> list[tuple[str, int]]:
    """The instructions of a stage: one step forward, one step backward."""
    ahead = STAGES - 1 - stage
    found = [("forward", microbatch) for microbatch in range(ahead)]
    for microbatch in range(MICROBATCHES):
        if microbatch + ahead < MICROBATCHES:
            found.append(("forward", microbatch + ahead))
        found.append(("backward", microbatch))
    return found


def _goes_on(stage: int, read: int, write: int, *, goes_on: bool) -> bool:
    """What rank 0 decides, on both ranks."""
    if stage == 0:
        os.write(write, struct.pack("?", goes_on))
        return goes_on
    return bool(struct.unpack("?", os.read(read, 1))[0])


def _instruction(
    pipeline: Pipeline, stage: int, kind: str, microbatch: int, forward_seconds: float, pipes: tuple[int, int]
) -> None:
    read, write = pipes
    share, intensity = KINDS[kind]
    receives = (kind == "forward") == (stage == 1)
    if receives:
        os.read(read, 1)
    with pipeline.instruction(kind, microbatch=microbatch):
        nvml_simulator.occupy(stage, share * forward_seconds * MODEL.teraflops_per_second, intensity)
    if not receives:
        os.write(write, b"\0")


def main() -> None:
    """Train as two ranks."""
    forwards, backwards = os.pipe(), os.pipe()
    child = os.fork()
    stage = 1 if child == 0 else 0
    os.environ |= {"RANK": str(stage), "LOCAL_RANK": str(stage), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    if stage:
        train(stage, forwards[0], backwards[1])
    else:
        train(stage, backwards[0], forwards[1])
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main()
