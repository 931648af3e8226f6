"""1F1B with early recomputation (Merak, Lai et al. 2023): a stage computes activations again while it waits.

The forward pass keeps the input of a stage alone. While forwards remain, the stage computes its activations again and
runs the backward pass in one instruction, `forwardbackward`. For its last backwards it computes them again before the
gradient has arrived: `recomputation`, then `backward`. `wattloop plan --schedule early-recompute-1f1b` plans it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from wattloop.pipeline import Instruction, Pipeline

FORWARD, BACKWARD, RECOMPUTATION, FORWARD_BACKWARD = "forward", "backward", "recomputation", "forwardbackward"
METHODS = {
    FORWARD: "forward_one_chunk",
    RECOMPUTATION: "recompute_one_chunk",
    BACKWARD: "backward_one_chunk",
    FORWARD_BACKWARD: "recompute_backward_one_chunk",
}

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def stage_order(stage: int, stages: int, microbatches: int) -> list[Instruction]:
    """The instructions of a stage in execution order."""
    ahead = min(stages - stage - 1, microbatches)
    order = [Instruction(FORWARD, stage, microbatch) for microbatch in range(ahead)]
    for microbatch in range(microbatches - ahead):
        order.append(Instruction(FORWARD, stage, microbatch + ahead))
        order.append(Instruction(FORWARD_BACKWARD, stage, microbatch))
    for microbatch in range(microbatches - ahead, microbatches):
        order += [Instruction(RECOMPUTATION, stage, microbatch), Instruction(BACKWARD, stage, microbatch)]
    return order


@dataclass(frozen=True)
class Neighbours:
    """How a stage exchanges tensors with the one before and the one after.

    Each direction has a process group, so that the messages between two ranks of a group keep one order.

    Attributes:
        before, after: Global ranks; None at an end of the pipeline.
        forward, backward: The groups of activations and of gradients.
        shape, dtype, device: Of the activations that this stage receives; the first one receives none.
    """

    before: int | None
    after: int | None
    forward: dist.ProcessGroup
    backward: dist.ProcessGroup
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def receive(self, sender: int, group: dist.ProcessGroup, shape: tuple[int, ...]) -> torch.Tensor:
        """Wait for a tensor."""
        found = torch.empty(shape, dtype=self.dtype, device=self.device)
        dist.recv(found, sender, group=group)
        return found


class RecomputingStage:
    """A stage whose forward pass keeps its inputs alone.

    Args:
        module: The layers of the stage.
        stage_index, num_stages: Its number, and the number of stages.
        loss: Compares the output of the last stage with the targets.
    """

    def __init__(self, module: nn.Module, stage_index: int, num_stages: int, loss: Loss) -> None:
        self.submod = module
        self.stage_index = stage_index
        self.num_stages = num_stages
        self._loss = loss
        self._inputs: dict[int, torch.Tensor] = {}
        self._outputs: dict[int, torch.Tensor] = {}

    @property
    def is_last(self) -> bool:
        """Whether its output is that of the model."""
        return self.stage_index == self.num_stages - 1

    def forward_one_chunk(self, chunk: int, inputs: torch.Tensor) -> torch.Tensor:
        """The output for a microbatch, without what a backward pass needs."""
        # Tokens have no gradient.
        self._inputs[chunk] = inputs.requires_grad_(inputs.is_floating_point() and self.stage_index > 0)
        with torch.no_grad():
            found: torch.Tensor = self.submod(inputs)
        return found

    def recompute_one_chunk(self, chunk: int, targets: torch.Tensor | None) -> None:
        """Compute the output again, with what a backward pass needs; the last stage compares it with its targets."""
        outputs = self.submod(self._inputs[chunk])
        self._outputs[chunk] = outputs if targets is None else self._loss(outputs, targets)

    def backward_one_chunk(self, chunk: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """The gradient of the inputs; those of the weights are added to the ones before."""
        self._outputs.pop(chunk).backward(gradient)
        return self._inputs.pop(chunk).grad

    def recompute_backward_one_chunk(
        self, chunk: int, targets: torch.Tensor | None, gradient: torch.Tensor | None
    ) -> torch.Tensor | None:
        """Both, one after the other."""
        RecomputingStage.recompute_one_chunk(self, chunk, targets)
        return RecomputingStage.backward_one_chunk(self, chunk, gradient)

    def loss_value(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss of a microbatch, without a gradient."""
        return self._loss(outputs, targets).detach()


class EarlyRecomputation:
    """The schedule; it is stepped like those of PyTorch.

    Args:
        stage: The stage of this rank.
        microbatches: Number of microbatches of a step.
        neighbours: The stages before and after.
    """

    def __init__(self, stage: RecomputingStage, microbatches: int, neighbours: Neighbours) -> None:
        self._stage = stage
        self._microbatches = microbatches
        self._neighbours = neighbours
        self.instructions = tuple(stage_order(stage.stage_index, stage.num_stages, microbatches))
        self._pipeline: Pipeline | None = None
        self._output_shape: tuple[int, ...] = ()

    def follow(self, pipeline: Pipeline) -> None:
        """Let a pipeline record the instructions, and set its clocks."""
        self._pipeline = pipeline
        for kind, name in METHODS.items():
            setattr(self._stage, name, _recorded(pipeline, kind, getattr(self._stage, name)))

    def step(
        self,
        inputs: torch.Tensor | None = None,
        *,
        target: torch.Tensor | None = None,
        losses: list[torch.Tensor] | None = None,
    ) -> None:
        """One step: forward and backward of all microbatches. Gradients are means over microbatches.

        Args:
            inputs: The samples, for the first stage.
            target: Their targets, for the last stage.
            losses: Gets the loss of each microbatch on the last stage.
        """
        if self._pipeline is None:
            raise RuntimeError("follow() has not been called")
        chunks = None if inputs is None else inputs.chunk(self._microbatches)
        targets = None if target is None else target.chunk(self._microbatches)
        sent: list[Any] = []
        with self._pipeline.iteration():
            for each in self.instructions:
                self._run(each, chunks, targets, losses, sent)
            for work, _ in sent:
                work.wait()
        for parameter in self._stage.submod.parameters():
            if parameter.grad is not None:
                parameter.grad /= self._microbatches

    def _run(
        self,
        each: Instruction,
        chunks: tuple[torch.Tensor, ...] | None,
        all_targets: tuple[torch.Tensor, ...] | None,
        losses: list[torch.Tensor] | None,
        sent: list[Any],
    ) -> None:
        stage, near, chunk = self._stage, self._neighbours, each.microbatch
        targets = None if all_targets is None or not stage.is_last else all_targets[chunk]
        if each.kind == FORWARD:
            inputs = chunks[chunk] if near.before is None and chunks else self._activation()
            outputs = stage.forward_one_chunk(chunk, inputs).contiguous()
            if near.after is not None:
                sent.append((dist.isend(outputs, near.after, group=near.forward), outputs))
            elif losses is not None and targets is not None:
                losses.append(stage.loss_value(outputs, targets))
            self._output_shape = tuple(outputs.shape)
            return
        if each.kind == RECOMPUTATION:
            stage.recompute_one_chunk(chunk, targets)
            return
        gradient = None if near.after is None else near.receive(near.after, near.backward, self._output_shape)
        if each.kind == FORWARD_BACKWARD:
            found = stage.recompute_backward_one_chunk(chunk, targets, gradient)
        else:
            found = stage.backward_one_chunk(chunk, gradient)
        if near.before is not None and found is not None:
            found = found.contiguous()
            sent.append((dist.isend(found, near.before, group=near.backward), found))

    def _activation(self) -> torch.Tensor:
        near = self._neighbours
        if near.before is None:
            raise RuntimeError("step() of the first stage has no inputs")
        return near.receive(near.before, near.forward, near.shape)


def _recorded(pipeline: Pipeline, kind: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compute)
    def recorded(chunk: int, *args: Any) -> Any:
        with pipeline.instruction(kind, microbatch=chunk):
            return compute(chunk, *args)

    return recorded
