"""Trains an experiment of `models.py`: this rank's stage, its schedule, its clocks, its steps."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from early_recomputation import EarlyRecomputation, Neighbours, RecomputingStage
from experiment import EARLY_RECOMPUTATION, Degrees, Experiment, with_measured_costs
from measured_costs import measured_costs
from model_catalogue import Transformer
from model_layers import embedding_weight, head_of, make_stage
from models import is_series
from partitions import MEASURED
from simulated_gpu import SimulatedGpu
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.utils.checkpoint import checkpoint
from training_data import Samples, loss

import wattloop
from wattloop.errors import OperationError
from wattloop.integrations.torch_pipelining import attach
from wattloop.pipeline import ClockProfile, Pipeline, PlansCompleted
from wattloop_research.training import LimitBaseline, PlanFolder

# The gradients of the weights and of the inputs, each as much work as the forward pass.
BACKWARD_WORK = 2


@dataclass(frozen=True)
class Place:
    """This rank's part of the job.

    Attributes:
        copy: Number of its copy of the pipeline.
        stage: Number of its stage.
        ranks: Global ranks of its pipeline.
        pipeline: Process group of its pipeline.
        copies: That of the ranks with the same stage.
        device: Where it computes.
    """

    copy: int
    stage: int
    ranks: list[int]
    pipeline: dist.ProcessGroup
    copies: dist.ProcessGroup
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether it has the first stage."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """Whether it has the last stage."""
        return self.stage == len(self.ranks) - 1


class Stage(nn.Module):
    """The layers of a stage, one after the other.

    Args:
        layers: The layers.
        is_checkpointed: Keep the inputs of the layers alone, and compute the rest again in the backward pass.
    """

    def __init__(self, layers: nn.ModuleList, *, is_checkpointed: bool) -> None:
        super().__init__()
        self.layers = layers
        self._is_checkpointed = is_checkpointed

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Tokens or images in the first stage, else the output of the one before."""
        for layer in self.layers:
            if self._is_checkpointed and torch.is_grad_enabled():
                values = checkpoint(layer, values, use_reentrant=False)
            else:
                values = layer(values)
        return values


def train(experiment: Experiment, options: argparse.Namespace) -> None:
    """Train, or profile, and end.

    Raises:
        WattloopError: An option or a variable is not valid; or nothing was profiled.
    """
    place = joined(experiment.degrees)
    batch_size = experiment.model.global_batch_size
    if options.num_microbatches is not None:
        batch_size = options.num_microbatches * experiment.microbatch_size * options.dp
    run = wattloop.Run(
        batch_size=batch_size, max_epochs=math.ceil(options.max_steps / options.steps_per_epoch), devices=options.dp
    )
    microbatches = experiment.profile_microbatches
    if options.profile is None:
        microbatches = experiment.microbatches(run.batch_size)
    seed, dtype = run.seed if options.seed is None else options.seed, getattr(torch, options.dtype)
    if experiment.method == MEASURED:
        costs = measured_costs(experiment.model, experiment.microbatch_size, place.device, seed, dtype)
        experiment = with_measured_costs(experiment, costs, options.shard_count)
    if dist.get_rank() == 0:
        print("\n".join([experiment.name(microbatches), *experiment.description()]), flush=True)
    trainer = Trainer(experiment, options, place, run, microbatches=microbatches, seed=seed)
    if options.profile is not None:
        trainer.profile()
    else:
        with contextlib.suppress(PlansCompleted):
            trainer.train()
    trainer.close()
    dist.destroy_process_group()


def joined(degrees: Degrees) -> Place:
    """Join the process group of the job, and those of this rank's pipeline and of its copies."""
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if has_gpu else "gloo")
    copy, stage = degrees.place_of(dist.get_rank())
    pipeline, _ = dist.new_subgroups_by_enumeration(degrees.pipelines)
    copies, _ = dist.new_subgroups_by_enumeration(degrees.copies)
    return Place(copy, stage, degrees.pipelines[copy], pipeline, copies, device)


def gpu_name(gpu: SimulatedGpu, device: torch.device) -> str:
    """The GPU model as the name of a folder: ``A40`` of an NVIDIA A40."""
    product = gpu.product or (torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU")
    return re.sub(r"[^\w.-]+", "-", product.removeprefix("NVIDIA "))


class Trainer:
    """Trains one stage.

    Args:
        experiment: What is trained.
        options: The options of `models.py`.
        place: This rank's part.
        run: The run of this process.
        microbatches: Number of microbatches of a step.
        seed: Of weights and data.
    """

    def __init__(
        self,
        experiment: Experiment,
        options: argparse.Namespace,
        place: Place,
        run: wattloop.Run,
        *,
        microbatches: int,
        seed: int,
    ) -> None:
        self._experiment, self._options, self._place, self._run = experiment, options, place, run
        self._microbatches = microbatches
        self._dtype = getattr(torch, options.dtype)
        is_early = experiment.schedule == EARLY_RECOMPUTATION
        numbers = experiment.layers_of(place.stage)
        layers = make_stage(experiment.model, numbers, place.device, seed, self._dtype)
        is_checkpointed = options.activation_checkpointing and not is_early
        self._module = Stage(layers, is_checkpointed=is_checkpointed).to(place.device)
        self._shared = self._shared_weights(layers)
        self._samples = Samples(experiment.model, options.data, seed, place.copy)
        forward = experiment.teraflop(place.stage)
        backward = BACKWARD_WORK * forward
        work = {
            "forward": forward,
            "backward": backward + (forward if is_checkpointed else 0.0),
            "recomputation": forward,
            "forwardbackward": forward + backward,
        }
        self._schedule: Any
        self.pipeline = self._early(work) if is_early else self._one_forward_one_backward(work)
        learning_rate = options.learning_rate * run.learning_rate_scale
        self._optimizer = torch.optim.Adam(self._module.parameters(), lr=learning_rate)

    def train(self) -> None:
        """The steps, reported epoch by epoch."""
        steps, options = 0, self._options
        with self._run as run:
            for epoch in run.epochs():
                count = min(options.steps_per_epoch, options.max_steps - steps)
                mean = torch.stack([self.step() for _ in range(count)]).mean()
                # The last stages have it, of their own samples.
                dist.all_reduce(mean)
                steps += count
                if dist.get_rank() == 0:
                    print(f"epoch {epoch + 1} step {steps} loss={mean.item():.4f}", flush=True)
                run.report(metric=mean.item())
                if steps >= options.max_steps:
                    break

    def profile(self) -> None:
        """Steps until all ranks have measured each clock.

        Raises:
            OperationError: No clock was measured.
        """
        # The first step shows what the instructions are.
        self.step()
        is_measured = False
        while True:
            self.step()
            remaining = torch.tensor(float(bool(self.pipeline.clocks_megahertz)), device=self._place.device)
            dist.all_reduce(remaining, dist.ReduceOp.MAX)
            if not remaining:
                break
            is_measured = True
        self.pipeline.close()
        dist.barrier()
        path = self._profile_path
        if not is_measured and (path is None or not path.exists()):
            raise OperationError(f"no profile in {path}: no rank may hold a clock of its GPU; start the node's agent")
        if dist.get_rank() == 0:
            print(f"profile: {path}", flush=True)

    def step(self) -> torch.Tensor:
        """One training step.

        Returns:
            This rank's part of the mean loss, which is the sum over all ranks.
        """
        place, experiment = self._place, self._experiment
        inputs, targets = self._samples.draw(self._microbatches * experiment.microbatch_size)
        if inputs.is_floating_point():
            inputs = inputs.to(self._dtype)
        losses: list[torch.Tensor] = []
        given: dict[str, Any] = {"target": targets.to(place.device), "losses": losses} if place.is_last else {}
        self._optimizer.zero_grad()
        if place.is_first:
            self._schedule.step(inputs.to(place.device), **given)
        else:
            self._schedule.step(**given)
        self._add_gradients()
        self._optimizer.step()
        if not losses:
            return torch.zeros((), device=place.device)
        return torch.stack(losses).detach().mean() / experiment.degrees.data

    def close(self) -> None:
        """Let the GPUs run at free clocks."""
        self.pipeline.close()

    @property
    def _profile_path(self) -> Path | None:
        folder = self._options.profile
        return None if folder is None else Path(folder) / f"{self._experiment.profile_name}.csv"

    def _pipeline_options(self, gpu: SimulatedGpu) -> dict[str, Any]:
        options, path = self._options, self._profile_path
        found: dict[str, Any] = {"model": self._experiment.key, "run": self._run}
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            found["plan"] = ClockProfile(path, options.profile_clocks, options.num_prof_steps)
        elif options.baseline is not None:
            limits = {} if options.baseline_limits is None else {"limits": options.baseline_limits}
            found["plan"] = LimitBaseline(options.baseline, iterations=options.num_prof_steps, then="end", **limits)
        elif is_series(options):
            found["plan"] = PlanFolder(options.plan, iterations=options.num_prof_steps, then="end")
        elif options.plan is not None:
            found["plan"] = options.plan
        if options.dumps is not None:
            name = gpu_name(gpu, self._place.device)
            folder = self._experiment.folder(self._microbatches, name, is_series=is_series(options))
            found["dumps"] = Path(options.dumps) / folder
        return found

    def _one_forward_one_backward(self, work: dict[str, float]) -> Pipeline:
        place, stages = self._place, self._experiment.degrees.pipeline
        stage = PipelineStage(self._module, place.stage, stages, place.device, group=place.pipeline)
        # PyTorch's 1F1B has as many microbatches as stages at least. With one, the order of GPipe is the same.
        kind = ScheduleGPipe if self._microbatches == 1 else Schedule1F1B
        self._schedule = kind(stage, self._microbatches, loss_fn=loss)
        gpu = SimulatedGpu(stage, work)
        pipeline = attach(self._schedule, **self._pipeline_options(gpu), **gpu.options)
        gpu.exchange_times(pipeline)
        return pipeline

    def _early(self, work: dict[str, float]) -> Pipeline:
        place, experiment = self._place, self._experiment
        degrees = experiment.degrees
        stage = RecomputingStage(self._module, place.stage, degrees.pipeline, loss)
        gpu = SimulatedGpu(stage, work)
        backward, _ = dist.new_subgroups_by_enumeration(degrees.pipelines)
        neighbours = Neighbours(
            before=None if place.is_first else place.ranks[place.stage - 1],
            after=None if place.is_last else place.ranks[place.stage + 1],
            forward=place.pipeline,
            backward=backward,
            shape=() if place.is_first else experiment.input_shape(place.stage),
            dtype=self._dtype,
            device=place.device,
        )
        self._schedule = EarlyRecomputation(stage, self._microbatches, neighbours)
        pipeline = Pipeline(
            stage=place.stage,
            stages=degrees.pipeline,
            microbatches=self._microbatches,
            schedule=experiment.schedule,
            data_rank=place.copy,
            data_parallel=degrees.data,
            rank=dist.get_rank(),
            instructions=self._schedule.instructions,
            synchronize=None if place.device.type == "cpu" else torch.cuda.current_stream().synchronize,
            **self._pipeline_options(gpu),
            **gpu.options,
        )
        self._schedule.follow(pipeline)
        gpu.exchange_times(pipeline)
        return pipeline

    def _shared_weights(self, layers: nn.ModuleList) -> tuple[nn.Parameter, dist.ProcessGroup] | None:
        """The weights that the first and the last stage have both, and their process group; None for other stages."""
        degrees = self._experiment.degrees
        if degrees.pipeline == 1 or not isinstance(self._experiment.model, Transformer):
            return None
        groups = [dist.new_group([ranks[0], ranks[-1]]) for ranks in degrees.pipelines]
        head = head_of(layers)
        weight = embedding_weight(layers) if head is None else head.weight
        return None if weight is None else (weight, groups[self._place.copy])

    def _add_gradients(self) -> None:
        """Add up the gradients of shared weights, and average those of the copies."""
        if self._shared is not None:
            weight, group = self._shared
            dist.all_reduce(weight.grad, group=group)
        count = self._experiment.degrees.data
        if count > 1:
            for parameter in self._module.parameters():
                if parameter.grad is not None:
                    dist.all_reduce(parameter.grad, group=self._place.copies)
                    parameter.grad /= count
