"""What sets the clocks of a rank, and what writes its measurements: a plan that the script gives, or the operator."""

import importlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattloop.errors import UsageError
from wattloop.gpus.agent import GpuDescription
from wattloop.pipeline.directives import DirectiveState, LocalDirective, allowed_clocks
from wattloop.pipeline.iteration_energy import JoulesBetween
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.pipeline_place import PipelinePlace
from wattloop.pipeline.plan_messages import InstructionMeasurement
from wattloop.pipeline.profile_csv import ProfileKey
from wattloop.pipeline.rank_plan_file import Plan, given_plan
from wattloop.wire.environment import RunEnvironment

logger = logging.getLogger("wattloop")

# For a script that says none of them itself.
DUMPS_VARIABLE = "WATTLOOP_PIPELINE_DUMPS"
PLANS_VARIABLE = "WATTLOOP_PIPELINE_PLANS"
BASELINE_VARIABLE = "WATTLOOP_PIPELINE_BASELINE"


class PlansCompleted(SystemExit):
    """All runs of a series are over, and the training is to end; without a handler, it ends with exit code 0."""

    def __init__(self) -> None:
        super().__init__(0)


class Recorder:
    """Writes what a rank measures; each method does nothing unless a subclass does something.

    Called in the thread that measures. A file that cannot be written is left out, with a warning.
    """

    def add(self, record: IterationRecord) -> None:
        """Take a measured iteration, other than one of a profile."""

    def collect(
        self,
        before_seconds: float,
        joules_between: JoulesBetween,
        measurements: Callable[[], Sequence[InstructionMeasurement]],
    ) -> None:
        """Look up the energy of the iterations that end before a moment, and write what is complete.

        Args:
            before_seconds: The moment.
            joules_between: Looks up the energy.
            measurements: All instructions that have been measured so far.
        """

    def clock_measured(self, measurements: Sequence[InstructionMeasurement], blocking_watts: float | None) -> None:
        """Write what has been measured, after each clock: a process that is killed loses no clock."""

    def close(self, measurements: Sequence[InstructionMeasurement], blocking_watts: float | None) -> None:
        """Write everything."""


@dataclass(frozen=True)
class PlannedRank:
    """The rank that a plan is for.

    Attributes:
        place: Its place in the job.
        microbatches: Number of microbatches in an iteration.
        schedule: Name of the schedule.
        model: Name or digest of the model and its partition; may be empty.
        dumps: Folder for the time and energy of each iteration; None: they are not wanted.
        environment: The settings of the training process.
        state: Receives the directives.
    """

    place: PipelinePlace
    microbatches: int
    schedule: str
    model: str
    dumps: Path | None
    environment: RunEnvironment
    state: DirectiveState

    def profile_key(self, gpus: Sequence[GpuDescription]) -> ProfileKey:
        """What the measurements of this rank apply to, in a profile without an operator."""
        place = self.place
        partition = (
            f"data={place.data_parallel} tensor={place.tensor_parallel} pipeline={place.pipeline_parallel} "
            f"stages={place.stage_count} microbatches={self.microbatches} schedule={self.schedule}"
        )
        return ProfileKey(allowed_clocks(gpus).gpu_product.strip(), self.model.strip(), partition)


class PlanSource:
    """Sets the clocks of one rank; this one leaves that to the operator.

    Attributes:
        end_iteration: The iteration at which the training is to end; None: it goes on, or the end is not known yet.
    """

    end_iteration: int | None = None
    rank: PlannedRank

    def prepare(self, rank: PlannedRank) -> None:
        """Take the rank, before its GPUs are known.

        Raises:
            UsageError: The plan contradicts the rank, or another `Pipeline` has it.
            InputError: A plan file is not valid.
            OperationError: It cannot be read.
        """
        if getattr(self, "rank", None) is not None:
            raise UsageError(f"plan: found a {type(self).__name__} of another Pipeline, expected one of its own")
        self.rank = rank

    def begin(self, gpus: Sequence[GpuDescription]) -> list[Recorder]:
        """Give the directives, before the first iteration.

        Args:
            gpus: The GPUs of the process.

        Returns:
            What writes the measurements.

        Raises:
            UsageError: The GPUs do not allow the plan, or the dumps are of other runs.
            InputError: A file in the dumps is another one.
            OperationError: They cannot be read or written.
        """
        return self.dump(gpus, None)

    def dump(self, gpus: Sequence[GpuDescription], plan: Plan | None) -> list[Recorder]:
        """The dumps with a run for each directive; none if nobody wants them.

        Raises:
            OperationError: Their folder cannot be made.
        """
        if self.rank.dumps is None:
            return []
        if not gpus:
            logger.warning("no dumps in %s: this process has no GPU that the node's agent reads", self.rank.dumps)
            return []
        found: Recorder = laboratory().RunDump.of_plan(self.rank.dumps, self.rank.place.rank, plan)
        return [found]

    def hold(self, watts: int | None) -> None:
        """Hold the power limit of an iteration from now on; None: that of before."""

    def release(self) -> None:
        """Give everything back."""


class RankPlan(PlanSource):
    """A plan of the script for this rank.

    Args:
        plan: The clocks in execution order, or tuples of instruction, clock and a dict of knobs; or a plan file of
            ``wattloop plan``.
        gpu_product: The GPU model that it is for; on another one it is refused. Default: the one that the plan file
            names; without any it is not checked.
    """

    def __init__(self, plan: Plan, gpu_product: str = "") -> None:
        self._plan = plan
        self._gpu_product = gpu_product

    def prepare(self, rank: PlannedRank) -> None:
        """See `PlanSource`."""
        super().prepare(rank)
        row, product = given_plan(self._plan, rank.place, self._gpu_product)
        rank.state.receive(LocalDirective.of_plan(1, 0, row, product))

    def begin(self, gpus: Sequence[GpuDescription]) -> list[Recorder]:
        """See `PlanSource`."""
        return self.dump(gpus, self._plan)


def laboratory() -> Any:
    """The module `wattloop_research.training`: only some trainings need it. It needs the client alone."""
    return importlib.import_module("wattloop_research.training")
