"""What a training measures run by run: a folder of plans, or a baseline of power limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wattloop.errors import UsageError
from wattloop.gpus.agent import GpuDescription
from wattloop.pipeline.best_plan import PLAN_SCHEDULER, PlanFolder
from wattloop.pipeline.clock_choice import ClockChoice
from wattloop.pipeline.directives import DirectiveState
from wattloop.pipeline.experiment_name import WorkloadNames, experiment_folder
from wattloop.pipeline.limit_baseline import LimitBaseline
from wattloop.pipeline.limit_series import SCHEDULERS, baseline_options
from wattloop.pipeline.measurement_files import DUMPS_VARIABLE
from wattloop.pipeline.pipeline_place import PipelinePlace
from wattloop.pipeline.plan_series import read_plan_series, series_options
from wattloop.pipeline.run_dump import RunDump
from wattloop.wire.environment import RunEnvironment


class MeasuredSeries(Protocol):
    """The runs of a rank.

    Attributes:
        end_iteration: The iteration at which the training is to end; None: it goes on, or the end is not known yet.
    """

    end_iteration: int | None

    def begin(self, gpus: Sequence[GpuDescription]) -> RunDump | None:
        """Begin with the runs that the dumps lack.

        Args:
            gpus: The GPUs of the process.

        Returns:
            The dumps to write; None: nothing is measured.

        Raises:
            UsageError: The dumps are of other runs.
            InputError: A file in them is another one.
            OperationError: They cannot be read or written.
        """

    def hold(self, watts: int | None) -> None:
        """Hold a power limit from now on; None: that of before."""

    def close(self) -> None:
        """Give everything back."""


@dataclass(frozen=True)
class SeriesArguments:
    """What a script says of a series: see the arguments of `wattloop.pipeline.Pipeline`."""

    place: PipelinePlace
    plan: object
    plan_gpu_product: str
    iterations: int
    following: str
    profile: object
    baseline: str
    baseline_limits: int | Sequence[int]
    dumps: Path | None
    microbatches: int
    names: WorkloadNames

    def folder(self, scheduler: str) -> Path:
        """The folder of the dumps.

        Raises:
            UsageError: There is none, or its name cannot be made of what the script states.
        """
        if self.dumps is None:
            raise UsageError(
                "dumps: missing; a folder of plans or a baseline is run to be measured, so name a folder, or set "
                f"{DUMPS_VARIABLE}"
            )
        return experiment_folder(self.dumps, self.place, self.microbatches, self.names, scheduler)


def measured_series(
    given: SeriesArguments,
    variables: Mapping[str, str],
    environment: RunEnvironment,
    choice: ClockChoice,
    state: DirectiveState,
) -> MeasuredSeries | None:
    """The series of a training; None: it measures none.

    Args:
        given: What the script says.
        variables: The environment variables of the process.
        environment: What they say of the run.
        choice: Chooses clocks and limits of iterations.
        state: Receives the directives.

    Raises:
        UsageError: An option is not valid, or contradicts another one.
        InputError: A plan or a variable is not valid.
        OperationError: The folder of plans cannot be read.
    """
    limits = baseline_options(given.baseline, given.baseline_limits, given.iterations, given.following, variables)
    if given.profile is not None:
        other = "plan" if given.plan is not None else "baseline" if limits is not None else ""
        if other:
            raise UsageError(
                f"profile: found together with {other}, expected one of them: a profile sets the clocks itself"
            )
        return None
    plans = series_options(given.plan, given.iterations, given.following, variables)
    if limits is None:
        if plans is None:
            return None
        series = read_plan_series(plans, given.place, given.plan_gpu_product)
        return PlanFolder(series, given.place, given.folder(PLAN_SCHEDULER), choice, state)
    if given.plan is not None or plans is not None:
        raise UsageError(
            "plan: found together with baseline, expected one of them: a power limit changes the clocks of a plan"
        )
    if environment.power_limit_watts is not None or environment.profile_power_limits:
        raise UsageError("baseline: found in a job that sets power limits itself, expected mode None in its spec.power")
    folders = {method: _of_scheduler(given.folder(name), name) for method, name in SCHEDULERS.items()}
    return LimitBaseline(limits, given.place, choice, state, folders=folders, agent_socket=environment.agent_socket)


def _of_scheduler(folder: Path, scheduler: str) -> Path:
    """The folder itself if its name has the scheduler, else one of that name in it."""
    return folder if folder.name.endswith(scheduler) else folder / scheduler
