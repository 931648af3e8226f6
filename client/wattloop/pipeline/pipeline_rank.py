"""A rank of a pipeline for the training script: its iterations and its instructions."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from wattloop.errors import UsageError
from wattloop.gpus.agent import AgentConnection, AgentRequestError, AgentUnavailable, GpuDescription
from wattloop.gpus.process_gpus import gpus_of_process
from wattloop.pipeline.clock_sender import ClockSender, ClockTarget
from wattloop.pipeline.directives import ClockChoice, DirectiveState, IterationClocks, allowed_clocks
from wattloop.pipeline.instruction import Instruction
from wattloop.pipeline.instruction_scope import InstructionScope, InstructionSequence
from wattloop.pipeline.iteration_record import IterationRecord, Observer
from wattloop.pipeline.iteration_runner import IterationRunner
from wattloop.pipeline.knobs import Knobs
from wattloop.pipeline.pipeline_meter import started_meter
from wattloop.pipeline.pipeline_place import PipelinePlace, pipeline_place, require_integer, require_text
from wattloop.pipeline.plan_messages import Directive, StragglerNotice
from wattloop.pipeline.plan_source import (
    BASELINE_VARIABLE,
    DUMPS_VARIABLE,
    PLANS_VARIABLE,
    PlannedRank,
    PlansCompleted,
    PlanSource,
    RankPlan,
    laboratory,
)
from wattloop.pipeline.rank_messages import RankMessages
from wattloop.pipeline.rank_plan_file import Plan
from wattloop.printable import ascii_text
from wattloop.wire.environment import RunEnvironment
from wattloop.wire.launcher import process_rank
from wattloop.wire.message_fields import MessageError
from wattloop.wire.torch_group import torch_group
from wattloop.wire.training_messages import MAX_REASON_CHARACTERS

if TYPE_CHECKING:
    from wattloop.pipeline.plan_service import PlanServiceThread

logger = logging.getLogger("wattloop")

# The agent may be restarting for an upgrade.
AGENT_START_SECONDS = 15.0
MAX_MICROBATCHES = 999_999
MAX_SCHEDULE_CHARACTERS = 64
MAX_MODEL_CHARACTERS = 128


class PipelineRun(Protocol):
    """What a pipeline needs of a run: `wattloop.Run` implements it."""

    @property
    def environment(self) -> RunEnvironment:
        """The settings of the training process."""


class Pipeline:
    """One rank of a pipeline-parallel training.

    Each training step is an iteration, and each forward or backward pass of a microbatch an instruction.
    With a frequency plan, the node's agent holds the clock that the plan gives to each instruction. Without
    agent, operator or plan, one warning is logged, and the training runs as without a pipeline.

    Use it in one thread, as a context manager; without one, it begins with the first iteration and ends
    with the process.

    Args:
        stage: The model stage of this rank, from 0; several with interleaved schedules.
        stages: Number of model stages.
        microbatches: Number of microbatches in an iteration.
        schedule: Name of the schedule: 1F1B, GPipe, Interleaved1F1B, or another one.
        pipeline_rank: Rank in its pipeline; default: by the stage.
        pipeline_parallel: Number of ranks of a pipeline; default: by the stages.
        data_rank: Rank among the data-parallel ones.
        data_parallel: Number of data-parallel ranks.
        tensor_rank: Rank among the tensor-parallel ones.
        tensor_parallel: Number of tensor-parallel ranks.
        rank: Global rank; default: that of the launcher or of PyTorch's process group, else by the degrees.
        instructions: The instructions of one iteration in execution order; default: those of the first
            iteration.
        plan: The clocks of this rank in execution order, in MHz, or tuples of instruction, clock and a dict of
            knobs; or a plan file of ``wattloop plan``; or a `RankPlan` of these, which names their GPU model; or a
            `ClockProfile`, which measures the instructions at several clocks; or a series of runs of
            `wattloop_research.training`, as which a folder of plan files counts too. Default: the series that
            ``WATTLOOP_PIPELINE_PLANS`` or ``WATTLOOP_PIPELINE_BASELINE`` names, else the operator plans.
        dumps: Folder for the time and energy of each iteration, for ``wattloop pipeline analyze``; default: the
            variable ``WATTLOOP_PIPELINE_DUMPS``, or none.
        run: The run of this process, whose operator then plans; default: as the environment says.
        model: Name or digest of the model and its partition: profiles of equal ones are reused.
        gpus: The GPUs that this process uses, by index or UUID; default: as `wattloop.Run`.
        synchronize: Waits until the GPUs have done the queued work, at the begin and the end of each
            instruction that has a clock; default: PyTorch's, if the process uses it with CUDA when the iteration
            begins.
        environment: The variables to read; default: the process's environment.
        now: The clock of instructions, in seconds; default: CLOCK_MONOTONIC. With a clock of another time, nothing
            is measured.

    Raises:
        InputError: The plan is not valid, or a variable of Wattloop has an invalid value.
        UsageError: A number is out of its range, or the numbers contradict each other.
        OperationError: The folder of plans cannot be read.

    Example:
        >>> pipeline = Pipeline(stage=0, stages=2, microbatches=2, environment={})
        >>> with pipeline:
        ...     for step in range(3):
        ...         with pipeline.iteration():
        ...             for kind in ("forward", "backward"):
        ...                 for microbatch in range(2):
        ...                     with pipeline.instruction(kind, microbatch=microbatch):
        ...                         pass
        >>> pipeline.iterations, len(pipeline.instructions)
        (3, 4)
    """

    def __init__(
        self,
        *,
        stage: int | Sequence[int],
        stages: int,
        microbatches: int,
        schedule: str = "1F1B",
        pipeline_rank: int | None = None,
        pipeline_parallel: int | None = None,
        data_rank: int = 0,
        data_parallel: int = 1,
        tensor_rank: int = 0,
        tensor_parallel: int = 1,
        rank: int | None = None,
        instructions: Sequence[Instruction | str] | None = None,
        plan: Plan | PlanSource | None = None,
        dumps: str | Path | None = None,
        run: PipelineRun | None = None,
        model: str = "",
        gpus: Sequence[int | str] | None = None,
        synchronize: Callable[[], None] | None = None,
        environment: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._variables = os.environ if environment is None else environment
        self.environment = RunEnvironment.read(self._variables) if run is None else run.environment
        self.place = pipeline_place(
            stage=stage,
            stages=stages,
            pipeline_rank=pipeline_rank,
            pipeline_parallel=pipeline_parallel,
            data_rank=data_rank,
            data_parallel=data_parallel,
            tensor_rank=tensor_rank,
            tensor_parallel=tensor_parallel,
            rank=_launched_rank(self._variables) if rank is None else rank,
        )
        require_integer("microbatches", microbatches, 1, MAX_MICROBATCHES)
        require_text("schedule", schedule, MAX_SCHEDULE_CHARACTERS)
        require_text("model", model, MAX_MODEL_CHARACTERS, min_length=0)
        self._chosen_gpus = gpus
        self._sequence = InstructionSequence(_checked(instructions or (), self.place, microbatches))
        self._state = DirectiveState()
        self._choice = ClockChoice(self._state, self._sequence, self._profiling_clock)
        named = dumps or self._variables.get(DUMPS_VARIABLE, "")
        self._rank = PlannedRank(
            self.place, microbatches, schedule, model, Path(named) if named else None, self.environment, self._state
        )
        given = _plan_source(plan, self._variables)
        self._has_plan = given is not None
        self._plan = PlanSource() if given is None else given
        self._plan.prepare(self._rank)
        self._now = now
        self._sender: ClockSender | None = None
        self._began = self._ended = False
        self._process_id = 0
        self._has_complete_iteration = False
        self._runner = IterationRunner(
            self._sequence,
            ClockTarget(),
            clocks_of=self._clocks_of,
            done=self._iteration_done,
            synchronization=torch_synchronization if synchronize is None else lambda: synchronize,
            now=now,
        )
        self._instructions = self._runner.instructions
        self._messages = RankMessages(self._rank, self._sequence, self._runner, self._choice)
        self._service: PlanServiceThread | None = None
        self._stage = self.place.stages[0] if len(self.place.stages) == 1 else None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(retry=kind is None)

    def open(self) -> None:
        """Find the GPUs of this process and begin to send clocks; done by the first iteration otherwise.

        Raises:
            UsageError: It has begun before; or the agent does not offer one of `gpus`.
        """
        if self._began:
            raise UsageError("this pipeline has begun before; make another wattloop.pipeline.Pipeline")
        self._began = True
        self._process_id = os.getpid()
        described = self._described_gpus()
        self._choice.allowed = allowed_clocks(described)
        if described:
            path = Path(self.environment.agent_socket)
            self._runner.clocks = self._sender = ClockSender(path, [gpu.uuid for gpu in described])
        if self._messages.observer is None:
            self._runner.hold_limit = self._plan.hold
            self._messages.observer = started_meter(
                [gpu.uuid for gpu in described],
                self._variables,
                self._plan.begin(described),
                first_rank=self.place.pipeline_rank == 0,
                is_reported=bool(self.environment.report_url),
                now=self._now,
            )
        self._messages.gpus = len(described)
        if self._has_plan:
            if self.environment.report_url:
                logger.warning(
                    "this rank runs what the script or its job gives it, so the operator plans nothing for it"
                )
        elif not self.environment.report_url:
            # A run whose dumps are wanted is one to compare with.
            level = logging.WARNING if self._rank.dumps is None else logging.INFO
            logger.log(level, "no frequency plan: neither plan= nor an operator is there; the GPUs' clocks stay free")
        elif self._choice.allowed.allowed_megahertz:
            self._service = self._started_service()
        elif described:
            logger.warning("no clock may be held on the GPUs of this rank, so it is not registered for a plan")
        atexit.register(self.close)

    def close(self) -> None:
        """Let the GPUs run at free clocks and send the last report; called twice, it does nothing."""
        self._close(retry=True)

    def _close(self, *, retry: bool) -> None:
        # A process made by fork has none of the threads.
        if self._ended or not self._began or os.getpid() != self._process_id:
            return
        self._ended = True
        atexit.unregister(self.close)
        if self._sender is not None:
            self._sender.close()
        self._plan.release()
        if self._messages.observer is not None:
            self._messages.observer.close()
        if self._service is not None:
            self._service.close(retry=retry)

    @property
    def iterations(self) -> int:
        """Number of complete iterations."""
        return self._runner.iterations

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions of an iteration in execution order; empty until they are known."""
        return self._sequence.instructions

    @property
    def mismatch(self) -> str:
        """How the instructions of the last iteration differ from `instructions`; empty if they do not."""
        return self._sequence.mismatch

    @property
    def clocks_megahertz(self) -> tuple[int, ...]:
        """The clock of each instruction of this iteration, in execution order; empty: free clocks."""
        return self._runner.megahertz

    @property
    def knobs(self) -> Knobs:
        """The knobs of the instruction that runs: what its plan chooses beside the clock, as text by name.

        It is empty as long as no plan with knobs is in force, so give a default:

        Example:
            >>> plan = [("forward", 1410, {"sm": "16"})]
            >>> pipeline = Pipeline(stage=0, stages=1, microbatches=1, plan=plan, environment={})
            >>> with pipeline, pipeline.iteration(), pipeline.instruction("forward", microbatch=0):
            ...     int(pipeline.knobs.get("sm", "20"))  # 16 where an agent holds 1410 MHz
            20
        """
        return self._runner.knobs

    @property
    def refusal(self) -> str:
        """Why the clocks are free although a directive or plan gives some; empty if it gives none."""
        return self._choice.chosen.refusal

    def observe(self, observer: Observer) -> None:
        """Have an observer measure the iterations and choose the clocks that are profiled, from now on."""
        self._messages.observer = observer

    def announce_straggler(self, iteration_seconds: float | None, reason: str = "") -> None:
        """Tell the operator that iterations take longer than planned, so that it chooses a slower plan.

        It does not wait. Without the operator, it does nothing.

        Args:
            iteration_seconds: Time of an iteration of the slowest pipeline; None: the straggler is over.
            reason: What was noticed, for the status of the job.

        Raises:
            UsageError: The time is not positive.
        """
        notice = StragglerNotice(iteration_seconds, ascii_text(reason, MAX_REASON_CHARACTERS))
        try:
            notice.check("")
        except MessageError as error:
            raise UsageError(str(error)) from error
        if self._service is not None:
            self._service.announce(notice)

    @contextmanager
    def iteration(self) -> Iterator[None]:
        """A training step; an exception in it ends it without counting it.

        Raises:
            UsageError: Another iteration has not ended.
            PlansCompleted: All runs of the series are over, and the training is to end.
        """
        if not self._began:
            self.open()
        end = self._plan.end_iteration
        if end is not None and self._runner.iterations >= end:
            raise PlansCompleted
        self._runner.begin_iteration()
        completed = False
        try:
            yield
            completed = True
        finally:
            self._runner.end_iteration(completed=completed)

    def instruction(self, kind: str, *, microbatch: int, stage: int | None = None) -> InstructionScope:
        """An instruction of the iteration, as a context manager.

        Args:
            kind: ``forward``, ``backward``, or another name of lower-case letters and digits.
            microbatch: From 0.
            stage: The model stage; default: that of the rank, if it has one.

        Raises:
            UsageError: There is no iteration, another instruction has not ended, or the stage is missing.
        """
        own = self._stage if stage is None else stage
        if own is None:
            raise UsageError(f"stage: found none, expected one of {self.place.stages}, the stages of this rank")
        instructions = self._instructions
        if not instructions.is_ready:
            raise instructions.wrong_use()
        instructions.key = (kind, own, microbatch)
        return instructions

    def _clocks_of(self, iteration: int) -> IterationClocks:
        return self._choice.clocks_of(iteration, self._runner.clocks.refusal)

    def _profiling_clock(self, directive: Directive, iteration: int) -> int | None:
        observer = self._messages.observer
        return None if observer is None else observer.profiling_clock(directive, iteration)

    def _iteration_done(self, record: IterationRecord) -> None:
        if self._messages.observer is not None:
            self._messages.observer.iteration_done(record)
        if self._service is not None and not self._has_complete_iteration:
            # The instructions are known now.
            self._service.wake()
        self._has_complete_iteration = True

    def _started_service(self) -> PlanServiceThread:
        # Imported here because it imports an HTTP client.
        from wattloop.pipeline.plan_service import PlanExchange, PlanServiceThread  # noqa: PLC0415
        from wattloop.wire.operator_api import OperatorApi  # noqa: PLC0415

        settings = self.environment
        api = OperatorApi(settings.report_url, settings.token_file, settings.certificate_authority_file)
        service = PlanServiceThread(PlanExchange(api, self._messages))
        service.start()
        return service

    def _described_gpus(self) -> tuple[GpuDescription, ...]:
        if not self.environment.agent_socket:
            logger.warning("no agent: WATTLOOP_AGENT_SOCKET names no socket; the GPUs' clocks stay free")
            return ()
        try:
            with AgentConnection(self.environment.agent_socket) as agent:
                agent.wait(AGENT_START_SECONDS)
                return gpus_of_process(agent.gpus(), self._variables, self._chosen_gpus)
        except (AgentUnavailable, AgentRequestError) as error:
            logger.warning("the GPUs' clocks stay free: %s", error)
            return ()


def _plan_source(plan: Plan | PlanSource | None, variables: Mapping[str, str]) -> PlanSource | None:
    """What sets the clocks: what the script gives, else what the job's variables name; None: the operator.

    Raises:
        UsageError: The script gives a plan, and the job measures a baseline.
    """
    if plan is not None and variables.get(BASELINE_VARIABLE):
        raise UsageError(
            f"plan: found together with {BASELINE_VARIABLE}, expected one of them: a power limit changes the clocks "
            "of a plan"
        )
    if isinstance(plan, PlanSource):
        return plan
    source: PlanSource | None = None
    if plan is None:
        if variables.get(PLANS_VARIABLE) or variables.get(BASELINE_VARIABLE):
            source = laboratory().series_of_job(variables)
    elif isinstance(plan, (str, Path)) and Path(plan).is_dir():
        source = laboratory().PlanFolder(plan)
    else:
        source = RankPlan(plan)
    return source


def torch_synchronization() -> Callable[[], None] | None:
    """Waits for the work that PyTorch has queued on the current GPU; None if it uses none. PyTorch is not imported."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    synchronize: Callable[[], None] = torch.cuda.synchronize
    return synchronize


def _launched_rank(variables: Mapping[str, str]) -> int | None:
    """The global rank by the launcher, else by the process group of PyTorch; None without either."""
    launched = process_rank(variables)
    if launched.ranks > 1:
        return launched.rank
    group = torch_group()
    return None if group is None else group.rank


def _checked(
    instructions: Sequence[Instruction | str], place: PipelinePlace, microbatches: int
) -> tuple[Instruction, ...]:
    checked = []
    for each in instructions:
        try:
            # Through its text, so that the kind of a given object is checked too.
            instruction = Instruction.of(each if isinstance(each, str) else each.text)
        except ValueError as error:
            raise UsageError(f"instructions: {error}") from error
        if instruction.stage not in place.stages or instruction.microbatch >= microbatches:
            raise UsageError(
                f"instructions: found {instruction.text}, expected a stage of {place.stages} and a microbatch "
                f"below {microbatches}"
            )
        checked.append(instruction)
    if len(set(checked)) < len(checked):
        raise UsageError("instructions: found one twice, expected each instruction once")
    return tuple(checked)
