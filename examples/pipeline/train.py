"""Trains a small GPT in pipeline stages, one for each process.

    torchrun --standalone --nproc-per-node 4 examples/pipeline/train.py

It runs on GPUs with NCCL, and without GPUs with gloo. Comments with (wattloop) mark what Wattloop needs.
"""

from __future__ import annotations

import os

import gpt
import torch
import torch.distributed as dist
from simulated_gpu import SimulatedGpu
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import wattloop
from wattloop.integrations.torch_pipelining import attach

MICROBATCHES = 16
STEPS_PER_EPOCH = 8
LEARNING_RATE = 0.01


def main() -> None:
    """Train until the loss reaches the target."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    number, stages = dist.get_rank(), dist.get_world_size()
    run = wattloop.Run(batch_size=64, max_epochs=40)  # (wattloop)
    # Every rank makes the same data, and its own part of the model.
    random = torch.Generator().manual_seed(run.seed % 2**32)
    torch.manual_seed(run.seed % 2**32 + number)
    module = gpt.stage(number, stages).to(device)
    stage = PipelineStage(module, number, stages, device)
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=gpt.loss)
    gpu = SimulatedGpu(stage)
    pipeline = attach(schedule, run=run, **gpu.options)  # (wattloop)
    gpu.exchange_times(pipeline)
    optimizer = torch.optim.Adam(module.parameters(), lr=LEARNING_RATE * run.learning_rate_scale)
    with run:
        for epoch in run.epochs():  # (wattloop)
            mean = torch.zeros((), device=device)
            for _ in range(STEPS_PER_EPOCH):
                tokens = gpt.sequences(run.batch_size, random).to(device)
                optimizer.zero_grad()
                losses: list[torch.Tensor] = []
                if number == 0:
                    schedule.step(tokens[:, :-1].contiguous())  # the strides of the first step hold for all
                elif number == stages - 1:
                    schedule.step(target=tokens[:, 1:].contiguous(), losses=losses)
                    mean += torch.stack(losses).detach().mean() / STEPS_PER_EPOCH
                else:
                    schedule.step()
                optimizer.step()
            dist.broadcast(mean, stages - 1)
            if number == 0:
                print(f"epoch {epoch + 1} loss={mean.item():.4f}", flush=True)
            run.report(metric=mean.item())  # (wattloop)
    pipeline.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
