"""`torch.distributed.pipelining` under a frequency plan.

Each forward and backward of a chunk is an instruction, and each training step of the schedule an
iteration. What the schedule computes, and the order of its communication, stay as they are.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import torch

from wattloop.errors import UsageError
from wattloop.integrations.torch_schedule import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    instructions_of,
    microbatches_of,
    place_of,
    replica_of,
    schedule_name,
    stages_of,
)
from wattloop.pipeline import Pipeline

if TYPE_CHECKING:
    from wattloop.run.training_run import Run

FOLLOWED = "_wattloop_pipeline"
# Where the script gives one of them, the pipelines are not counted.
REPLICA_OPTIONS = frozenset({"data_rank", "data_parallel", "tensor_rank", "tensor_parallel"})
FULL_BACKWARD_POSITION = 1  # backward_one_chunk(chunk, loss, full_backward, last_backward), without the chunk


class InstructionRecorder(Protocol):
    """The part of `wattloop.pipeline.Pipeline` that a schedule calls."""

    def iteration(self) -> AbstractContextManager[object]:
        """A training step."""

    def instruction(self, kind: str, *, microbatch: int, stage: int) -> AbstractContextManager[object]:
        """One instruction of a training step."""


def attach(schedule: Any, run: Run | None = None, **options: Any) -> Pipeline:
    """Train a schedule of `torch.distributed.pipelining` under the frequency plans of the operator.

    Call it on every rank, before the first training step. The pipeline begins with that step and ends with
    the process.

    Args:
        schedule: `Schedule1F1B`, `ScheduleGPipe`, `ScheduleInterleaved1F1B`, or another schedule of several
            stages per rank, with a loss function.
        run: The run of this process, if the script has one.
        options: Arguments of `wattloop.pipeline.Pipeline`, such as ``plan`` or ``model``. By default, they
            follow from the schedule; pipelines beside this one count as data-parallel.

    Returns:
        The pipeline.

    Raises:
        InputError: The plan is not valid, or a variable of Wattloop has an invalid value.
        UsageError: The schedule is unsupported or attached already, or an option is not valid.

    Example:
        ::

            schedule = Schedule1F1B(stage, n_microbatches=16, loss_fn=loss)
            pipeline = attach(schedule, run=run)
    """
    instructions = instructions_of(schedule)
    _refuse_second(schedule)
    place = place_of(schedule)
    chosen: dict[str, Any] = {
        "stage": place.own_stages,
        "stages": place.stages,
        "microbatches": microbatches_of(schedule),
        "schedule": schedule_name(schedule),
        "pipeline_rank": place.pipeline_rank,
        "pipeline_parallel": place.pipeline_parallel,
        "rank": place.rank,
        "instructions": instructions,
        "synchronize": stream_synchronization(schedule),
    }
    if not REPLICA_OPTIONS & options.keys():
        chosen["data_parallel"] = place.ranks // place.pipeline_parallel
        chosen["data_rank"] = replica_of(place.group_ranks, place.ranks)
    pipeline = Pipeline(run=run, **(chosen | options))
    follow(schedule, pipeline)
    return pipeline


def follow(schedule: Any, pipeline: InstructionRecorder) -> None:
    """Let a pipeline record the training steps of a schedule, and set its clocks.

    Steps that only run forward (`schedule.eval`) are no iterations.

    Args:
        schedule: A schedule of `torch.distributed.pipelining` with a loss function.
        pipeline: The pipeline, whose instructions are those of the schedule.

    Raises:
        UsageError: The schedule is unsupported, or followed already.
    """
    instructions_of(schedule)
    _refuse_second(schedule)
    setattr(schedule, FOLLOWED, pipeline)
    _Follower(schedule, pipeline).install()


def stream_synchronization(schedule: Any) -> Callable[[], None] | None:
    """Waits for the work of this rank's current stream, with which an instruction begins and ends.

    Kernels run after the calls that start them. Other streams, which send and receive, are not waited
    for: a peer may take a message only later.

    Returns:
        The function; None for stages on the processor.
    """
    device = stages_of(schedule)[0].device
    if device.type == "cpu":
        return None

    def synchronize() -> None:
        torch.accelerator.current_stream(device).synchronize()

    return synchronize


def _refuse_second(schedule: Any) -> None:
    if hasattr(schedule, FOLLOWED):
        raise UsageError("this schedule is attached already; call attach() once for each schedule")


class _Follower:
    """Replaces methods of one schedule and of its stages by calls that a pipeline records."""

    def __init__(self, schedule: Any, pipeline: InstructionRecorder) -> None:
        self._schedule = schedule
        self._pipeline = pipeline
        self._in_iteration = False
        # The forward of the last stage, which includes the loss.
        self._open: AbstractContextManager[object] | None = None

    def install(self) -> None:
        schedule = self._schedule
        schedule.step = self._step(schedule.step)
        schedule._maybe_compute_loss = self._loss(schedule._maybe_compute_loss)
        for stage in stages_of(schedule):
            stage.forward_one_chunk = self._forward(stage, stage.forward_one_chunk)
            stage.backward_one_chunk = self._backward(stage, stage.backward_one_chunk)
            stage.backward_weight_one_chunk = self._backward_weight(stage, stage.backward_weight_one_chunk)

    def _step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def followed(*args: Any, **named: Any) -> Any:
            if not self._schedule._has_backward:
                return step(*args, **named)
            with self._pipeline.iteration():
                self._in_iteration = True
                try:
                    return step(*args, **named)
                finally:
                    self._in_iteration = False
                    self._close()

        return followed

    def _forward(self, stage: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def followed(chunk: int, *args: Any, **named: Any) -> Any:
            if not self._in_iteration:
                return forward(chunk, *args, **named)
            self._close()
            instruction = self._pipeline.instruction(FORWARD, microbatch=chunk, stage=stage.stage_index)
            if not stage.is_last:
                with instruction:
                    return forward(chunk, *args, **named)
            instruction.__enter__()
            self._open = instruction
            return forward(chunk, *args, **named)

        return followed

    def _loss(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(compute)
        def followed(*args: Any, **named: Any) -> Any:
            # The schedule calls it after each forward of every stage.
            try:
                return compute(*args, **named)
            finally:
                self._close()

        return followed

    def _backward(self, stage: Any, backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def followed(chunk: int, *args: Any, **named: Any) -> Any:
            if not self._in_iteration:
                return backward(chunk, *args, **named)
            self._close()
            positional = args[FULL_BACKWARD_POSITION] if len(args) > FULL_BACKWARD_POSITION else True
            kind = BACKWARD if named.get("full_backward", positional) else BACKWARD_INPUT
            with self._pipeline.instruction(kind, microbatch=chunk, stage=stage.stage_index):
                return backward(chunk, *args, **named)

        return followed

    def _backward_weight(self, stage: Any, backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def followed(chunk: int, *args: Any, **named: Any) -> Any:
            if not self._in_iteration:
                return backward(chunk, *args, **named)
            with self._pipeline.instruction(BACKWARD_WEIGHT, microbatch=chunk, stage=stage.stage_index):
                return backward(chunk, *args, **named)

        return followed

    def _close(self) -> None:
        """End the forward of the last stage; does nothing for the others."""
        instruction, self._open = self._open, None
        if instruction is not None:
            instruction.__exit__(*sys.exc_info())
