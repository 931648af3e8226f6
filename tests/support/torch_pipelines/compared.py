"""Trains small pipelines without and with the adapter, each schedule twice from the same seed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage, schedules

from wattloop.integrations.torch_pipelining import follow
from wattloop.integrations.torch_schedule import instructions_of, place_of, schedule_name

RANKS = 4
WIDTH, BATCH, STEPS = 8, 32, 2
CASES = (
    ("Schedule1F1B", 1, 16),
    ("ScheduleGPipe", 1, 8),
    ("ScheduleInterleaved1F1B", 2, 8),
    ("ScheduleInterleavedZeroBubble", 2, 8),
)


@dataclass
class Trained:
    """Losses of each step (of the last stage), and gradients of all parameters at the end."""

    losses: list[list[torch.Tensor]] = field(default_factory=list)
    gradients: list[torch.Tensor] = field(default_factory=list)
    evaluation: torch.Tensor | None = None


@dataclass
class Compared:
    """A schedule on one rank.

    Attributes:
        events: What the adapter called, in order.
        instructions: What the adapter says in advance that a step runs.
    """

    plain: Trained
    followed: Trained
    events: list[str]
    instructions: list[str]
    name: str
    place: Any


class RecordingPipeline:
    """Writes down each call; a call inside another one of its kind is an error."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self._open: str | None = None

    @contextmanager
    def iteration(self) -> Iterator[None]:
        self.events.append("iteration")
        yield
        self.events.append("end")

    @contextmanager
    def instruction(self, kind: str, *, microbatch: int, stage: int) -> Iterator[None]:
        text = f"{kind}:{stage}:{microbatch}"
        assert self._open is None, f"{text} begins within {self._open}"
        self._open = text
        self.events.append(text)
        yield
        self._open = None


class Layer(torch.nn.Module):
    """A part of the model with dropout, so that a random number too much would show."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + self.dropout(torch.tanh(self.linear(values)))


def make_schedule(name: str, chunks: int, microbatches: int, rank: int) -> tuple[Any, list[torch.nn.Module]]:
    """A schedule of this name, and the model's parts of this rank."""
    torch.manual_seed(17 + rank)
    parts: list[torch.nn.Module] = [Layer() for _ in range(chunks)]
    device = torch.device("cpu")
    stages = [
        PipelineStage(part, rank + RANKS * chunk, RANKS * chunks, device)  # type: ignore[no-untyped-call,unused-ignore]
        for chunk, part in enumerate(parts)
    ]
    kind = getattr(schedules, name)
    loss = torch.nn.functional.mse_loss
    return kind(stages[0] if chunks == 1 else stages, microbatches, loss_fn=loss), parts


def train(name: str, chunks: int, microbatches: int, rank: int, pipeline: RecordingPipeline | None) -> Trained:
    """Train a few steps, and evaluate once."""
    schedule, parts = make_schedule(name, chunks, microbatches, rank)
    if pipeline is not None:
        follow(schedule, pipeline)
    found = Trained()
    for step in range(STEPS):
        batch = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))
        losses: list[torch.Tensor] = []
        inputs = (batch,) if rank == 0 else ()
        schedule.step(*inputs, target=batch.flip(0), losses=losses if rank == RANKS - 1 else None)
        found.losses.append([loss.detach() for loss in losses])
    found.gradients = [
        parameter.grad.clone() for part in parts for parameter in part.parameters() if parameter.grad is not None
    ]
    with torch.no_grad():
        found.evaluation = schedule.eval(*inputs, target=batch)
    return found


def compare(rank: int) -> dict[str, Compared]:
    """All schedules on one rank."""
    found = {}
    for name, chunks, microbatches in CASES:
        plain = train(name, chunks, microbatches, rank, None)
        pipeline = RecordingPipeline()
        followed = train(name, chunks, microbatches, rank, pipeline)
        schedule, _ = make_schedule(name, chunks, microbatches, rank)
        instructions = [instruction.text for instruction in instructions_of(schedule)]
        found[name] = Compared(
            plain, followed, pipeline.events, instructions, schedule_name(schedule), place_of(schedule)
        )
    return found
