"""What a schedule of `torch.distributed.pipelining` runs on this rank, and where the rank is in the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.pipelining import schedules

from wattloop.errors import UsageError
from wattloop.pipeline.instruction import Instruction

FORWARD, BACKWARD = "forward", "backward"
# A zero-bubble schedule computes the gradients of the inputs and those of the weights at different times.
BACKWARD_INPUT, BACKWARD_WEIGHT = "backwardinput", "backwardweight"
KINDS = {"F": FORWARD, "B": BACKWARD, "I": BACKWARD_INPUT, "W": BACKWARD_WEIGHT}
PREFIX = "Schedule"


@dataclass(frozen=True)
class SchedulePlace:
    """A rank's place in the job.

    Attributes:
        rank: Global rank of the process.
        pipeline_parallel: Number of ranks of a pipeline.
        pipeline_rank: Rank of the process in its pipeline.
        group_ranks: Global ranks of its pipeline, in the pipeline's order.
        ranks: Number of ranks of the job.
        own_stages: Model stages of this rank.
        stages: Number of model stages.
    """

    rank: int
    pipeline_parallel: int
    pipeline_rank: int
    group_ranks: tuple[int, ...]
    ranks: int
    own_stages: tuple[int, ...]
    stages: int


def stages_of(schedule: Any) -> list[Any]:
    """The stages of a schedule on this rank.

    Raises:
        UsageError: It is no schedule of `torch.distributed.pipelining`.
    """
    if isinstance(schedule, schedules.PipelineScheduleMulti):
        return list(schedule._stages)
    if isinstance(schedule, schedules.PipelineScheduleSingle):
        return [schedule._stage]
    raise UsageError(
        f"found {type(schedule).__name__}, expected a schedule of torch.distributed.pipelining; "
        "for a schedule of your own use wattloop.pipeline.Pipeline"
    )


def schedule_name(schedule: Any) -> str:
    """The name of a schedule: 1F1B, GPipe, Interleaved1F1B, or that of PyTorch's class that it derives from."""
    kinds = type(schedule).__mro__
    named = next((kind for kind in kinds if kind.__module__ == schedules.__name__), kinds[0])
    return named.__name__.removeprefix(PREFIX)


def microbatches_of(schedule: Any) -> int:
    """Number of microbatches of an iteration."""
    return int(schedule._n_microbatches)


def instructions_of(schedule: Any) -> tuple[Instruction, ...]:
    """The instructions of one training step on this rank, in execution order.

    Raises:
        UsageError: The schedule only runs forward, or its order is unknown.
    """
    stages = stages_of(schedule)
    if schedule._loss_fn is None:
        raise UsageError(f"{type(schedule).__name__} has no loss_fn, so it only runs forward; there is nothing to plan")
    if isinstance(schedule, schedules.PipelineScheduleMulti):
        return _instructions_of_actions(_actions(schedule))
    stage = int(stages[0].stage_index)
    microbatches = microbatches_of(schedule)
    if isinstance(schedule, schedules.ScheduleGPipe):
        ahead = microbatches
    elif isinstance(schedule, schedules.Schedule1F1B):
        ahead = min(int(stages[0].num_stages) - stage, microbatches)
    else:
        raise UsageError(
            f"the order of {type(schedule).__name__} is unknown; supported are Schedule1F1B, ScheduleGPipe, "
            "ScheduleInterleaved1F1B and other schedules of several stages per rank"
        )
    return alternating(stage, ahead, microbatches)


def alternating(stage: int, ahead: int, microbatches: int) -> tuple[Instruction, ...]:
    """Some forwards, then a backward and a forward in turn, then the remaining backwards.

    Example:
        >>> [each.text for each in alternating(2, 2, 3)]
        ['forward:2:0', 'forward:2:1', 'backward:2:0', 'forward:2:2', 'backward:2:1', 'backward:2:2']
    """
    order = [Instruction(FORWARD, stage, microbatch) for microbatch in range(ahead)]
    for microbatch in range(microbatches):
        order.append(Instruction(BACKWARD, stage, microbatch))
        if microbatch + ahead < microbatches:
            order.append(Instruction(FORWARD, stage, microbatch + ahead))
    return tuple(order)


def place_of(schedule: Any) -> SchedulePlace:
    """The place of this rank."""
    stages = stages_of(schedule)
    stage = stages[0]
    distributed = torch.distributed
    ranks = distributed.get_world_size()
    group_ranks = range(ranks) if stage.group is None else distributed.get_process_group_ranks(stage.group)
    return SchedulePlace(
        rank=distributed.get_rank(),
        pipeline_parallel=len(group_ranks),
        pipeline_rank=int(stage.group_rank),
        group_ranks=tuple(group_ranks),
        ranks=ranks,
        own_stages=tuple(int(each.stage_index) for each in stages),
        stages=int(stage.num_stages),
    )


def replica_of(group_ranks: Sequence[int], ranks: int) -> int:
    """The number of a pipeline among all pipelines of the job.

    All pipelines have the same number of ranks, at the same distance. That holds for each dimension of a device mesh.

    Args:
        group_ranks: Global ranks of the pipeline.
        ranks: Number of ranks of the job.

    Raises:
        UsageError: The ranks do not have equal distances, or do not divide the job.

    Example:
        >>> [replica_of(ranks, 8) for ranks in ([0, 2, 4, 6], [1, 3, 5, 7], [4, 5, 6, 7])]
        [0, 1, 1]
    """
    first, size = group_ranks[0], len(group_ranks)
    distance = group_ranks[1] - first if size > 1 else 1
    block = distance * size
    regular = distance > 0 and list(group_ranks) == list(range(first, first + block, distance))
    if not regular or ranks % block or first % block >= distance:
        raise UsageError(
            f"the pipeline has the ranks {', '.join(map(str, group_ranks))} of {ranks}, which is no dimension of a "
            "device mesh; pass data_parallel, data_rank, tensor_parallel and tensor_rank to attach()"
        )
    return first // block * distance + first % distance


def _actions(schedule: Any) -> list[Any]:
    """The actions of this rank: as they are executed, or, in older versions of PyTorch, without communication."""
    orders = getattr(schedule, "pipeline_order_with_comms", None) or schedule.pipeline_order
    actions = orders.get(schedule.rank) if orders else None
    if not actions:
        raise UsageError(f"{type(schedule).__name__} has no order for rank {schedule.rank}; load it before attach()")
    return list(actions)


def _instructions_of_actions(actions: Sequence[Any]) -> tuple[Instruction, ...]:
    found: list[Instruction] = []
    for action in actions:
        if action is None:
            continue
        if getattr(action, "sub_actions", None):
            found.extend(_instructions_of_actions(action.sub_actions))
        elif (kind := KINDS.get(action.computation_type.value)) is not None:
            found.append(Instruction(kind, int(action.stage_index), int(action.microbatch_index)))
    return tuple(found)
