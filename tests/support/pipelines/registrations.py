"""Registrations of the ranks of a small pipeline."""

from wattloop.pipeline.plan_messages import RankRegistration
from wattloop_planner.frequency import OneForwardOneBackward

CLOCKS = (900, 1100, 1300, 1410)


def instructions_of(stage: int, stages: int = 2, microbatches: int = 2) -> tuple[str, ...]:
    """The instructions of a stage in the 1F1B schedule."""
    order = OneForwardOneBackward(stages, microbatches).stage_order(stage)
    names = OneForwardOneBackward.instructions
    return tuple(
        f"{names[kind]}:{stage}:{microbatch}"
        for kind, microbatch in zip(order.instructions.tolist(), order.microbatches.tolist(), strict=True)
    )


def rank_registration(
    rank: int,
    *,
    process: str = "",
    data_parallel: int = 1,
    tensor_parallel: int = 1,
    stages: int = 2,
    microbatches: int = 2,
    gpu_product: str = "NVIDIA A40",
    clocks: tuple[int, ...] = CLOCKS,
) -> RankRegistration:
    """The registration of a rank; tensor ranks vary fastest, then pipeline ranks, then data ranks."""
    pipeline_rank = rank // tensor_parallel % stages
    return RankRegistration(
        process=process or f"{rank:032x}",
        rank=rank,
        data_parallel=data_parallel,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=stages,
        data_rank=rank // (tensor_parallel * stages) % data_parallel,
        tensor_rank=rank % tensor_parallel,
        pipeline_rank=pipeline_rank,
        stages=stages,
        microbatches=microbatches,
        schedule="1F1B",
        instructions=instructions_of(pipeline_rank, stages, microbatches),
        gpu_product=gpu_product,
        gpus=1,
        clocks_megahertz=clocks,
        model="gpt",
    )
