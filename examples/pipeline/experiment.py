"""What is trained, and how it is divided among GPUs: a model, its partition, the degrees, the microbatches.

Everything that says which experiment a measurement is of is made from it: the name of its folder, that of its profile,
and the key of what the plan service measures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from model_catalogue import Layer, Model, Transformer, model_named, narrowed
from partitions import CUSTOM, MEASURED, METHODS, balanced, custom, partition_text, shards, uniform, uniform_floor
from partitions import uniform_transformer as transformer_partition

from wattloop.errors import UsageError
from wattloop_research.training.experiment_name import PipelineWorkload

FRAMEWORK = "torch"
ONE_FORWARD_ONE_BACKWARD, EARLY_RECOMPUTATION = "1f1b", "early_recompute_1f1b"
SCHEDULES = (ONE_FORWARD_ONE_BACKWARD, EARLY_RECOMPUTATION)
# The bound of wattloop.pipeline.Pipeline.
MAX_KEY_CHARACTERS = 128


@dataclass(frozen=True)
class Degrees:
    """Numbers of ranks.

    Attributes:
        data: Copies of the pipeline, each with its own samples.
        pipeline: Stages.
    """

    data: int
    pipeline: int

    @property
    def ranks(self) -> int:
        """Number of ranks of the job."""
        return self.data * self.pipeline

    def place_of(self, rank: int) -> tuple[int, int]:
        """The copy and the stage of a rank; the ranks of a pipeline follow one another.

        Example:
            >>> Degrees(data=2, pipeline=4).place_of(6)
            (1, 2)
        """
        return divmod(rank, self.pipeline)

    @property
    def pipelines(self) -> list[list[int]]:
        """The ranks of each pipeline."""
        return [list(range(first, first + self.pipeline)) for first in range(0, self.ranks, self.pipeline)]

    @property
    def copies(self) -> list[list[int]]:
        """The ranks of each stage."""
        return [list(range(stage, self.ranks, self.pipeline)) for stage in range(self.pipeline)]


@dataclass(frozen=True)
class Experiment:
    """A model in stages.

    Attributes:
        model: The model.
        full_size: The model with its published sizes, but with as many layers: the load of simulated GPUs is its.
        sizes: Sizes that differ from the published ones, by the option's name.
        method: The name of the partition, as it was given.
        partition: Its boundaries, in layers of the model.
        degrees: Numbers of ranks.
        microbatch_size: Samples of a microbatch.
        schedule: One of `SCHEDULES`.
    """

    model: Model
    full_size: Model
    sizes: tuple[tuple[str, int | None], ...]
    method: str
    partition: tuple[int, ...]
    degrees: Degrees
    microbatch_size: int
    schedule: str

    @property
    def model_text(self) -> str:
        """The model's name, with the sizes that are not the published ones."""
        return "-".join([self.model.name, *(f"{name.replace('_', '')}{value}" for name, value in self.sizes)])

    def name(self, microbatches: int) -> str:
        """Its name, with its schedule in place of the published scheduler."""
        return f"{self._workload(microbatches).label}+{self.schedule}"

    def folder(self, microbatches: int, gpu: str, *, is_series: bool) -> Path:
        """The folder of its dumps, where `wattloop pipeline evaluate` finds them.

        Args:
            microbatches: Microbatches of a pipeline in a step.
            gpu: The GPU model.
            is_series: Whether it runs plans or power limits, whose scheduler `wattloop.pipeline.Pipeline` adds.
        """
        workload = self._workload(microbatches)
        name = self.name(microbatches)
        if is_series:
            # The published names have no schedule.
            is_default = self.schedule == ONE_FORWARD_ONE_BACKWARD
            framework = FRAMEWORK if is_default else f"{FRAMEWORK}-{self.schedule}"
            name = replace(workload, framework=framework).label
        return Path(gpu) / workload.parallelism / name

    @property
    def profile_name(self) -> str:
        """The name of its profile, which holds for any number of microbatches."""
        return self._workload(1).label.removesuffix("+nmb1")

    def _workload(self, microbatches: int) -> PipelineWorkload:
        data, stages = self.degrees.data, self.degrees.pipeline
        return PipelineWorkload(
            FRAMEWORK, self.model_text, self.method, data, stages, 1, self.microbatch_size, microbatches
        )

    @property
    def profile_microbatches(self) -> int:
        """The least number of microbatches in which each stage runs all its instructions."""
        return self.degrees.pipeline if self.schedule == EARLY_RECOMPUTATION else 1

    def microbatches(self, global_batch_size: int) -> int:
        """Number of microbatches of a step of each pipeline.

        Raises:
            UsageError: The batch size is no multiple of a microbatch on each copy, or has too few for the schedule.
        """
        together = self.microbatch_size * self.degrees.data
        if global_batch_size % together or not global_batch_size:
            near = max(round(global_batch_size / together), 1) * together
            raise UsageError(
                f"batch size: found {global_batch_size}, expected a multiple of microbatch size × --dp = {together}, "
                f"such as {near}"
            )
        found = global_batch_size // together
        stages = self.degrees.pipeline
        if self.schedule == ONE_FORWARD_ONE_BACKWARD and found < stages:
            raise UsageError(
                f"batch size: found {global_batch_size}, which are {found} microbatches, expected {stages} or more, "
                f"the number of stages, which is a batch size of {stages * together}"
            )
        return found

    @property
    def key(self) -> str:
        """What the plan service and a profile know the model by: with another partition it is another one.

        The partition stands in numbers, so that a measured balance that comes out differently is another one too.
        """
        text = f"{self.model_text}+{partition_text(self.partition)}+mbs{self.microbatch_size}"
        if len(text) <= MAX_KEY_CHARACTERS:
            return text
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return f"{text[: MAX_KEY_CHARACTERS - 17]}-{digest}"

    def layers_of(self, stage: int) -> range:
        """The numbers of the layers of a stage."""
        return range(self.partition[stage], self.partition[stage + 1])

    def teraflop(self, stage: int) -> float:
        """Work of the forward pass of a microbatch of a stage of the model with its published sizes."""
        layers = [self.full_size.layers[number] for number in self.layers_of(stage)]
        return sum(layer.operations for layer in layers) * self.microbatch_size / 1e12

    def input_shape(self, stage: int) -> tuple[int, ...]:
        """Shape of what a stage other than the first receives for a microbatch."""
        return (self.microbatch_size, *self.model.layers[self.partition[stage] - 1].outputs)

    def description(self) -> list[str]:
        """A line for each stage."""
        lines = []
        for stage, (first, end) in enumerate(pairwise(self.partition)):
            layers = self.model.layers[first:end]
            millions = sum(layer.parameters for layer in layers) / 1e6
            lines.append(
                f"stage {stage}: layers {first} to {end - 1}, {_kinds(layers)}, {millions:.2f} million parameters"
            )
        return lines


def partition_of(
    model: Model, method: str, stages: int, shard_count: int | None, measured_costs: Sequence[float] | None = None
) -> tuple[int, ...]:
    """The partition of this name, in layers of the model.

    Layers are first joined into shards, which ``custom:`` counts. Without `shard_count`, a transformer has as many
    shards as layers, and a Wide-ResNet as many as its residual connections allow.

    Args:
        model: The model.
        method: One of `partitions.METHODS`.
        stages: Number of stages.
        shard_count: Upper bound of the number of shards.
        measured_costs: The time of each layer, for the method ``measured``.

    Raises:
        UsageError: There is no such method, or it makes no partition of this model.
    """
    layers, inside = model.layers, shards_of(model, shard_count)
    total = len(inside) - 1
    if method == "uniform":
        found = uniform(total, stages)
    elif method == "uniform_floor":
        found = uniform_floor(total, stages)
    elif method == "uniform_transformer":
        before, blocks, after = model.transformer_layers
        if blocks and total != len(layers):
            raise UsageError(
                f"--shard-count: found {shard_count}, which joins the {len(layers)} layers to {total} shards, but "
                "uniform_transformer divides single blocks; expected none, or another --partition-method"
            )
        found = transformer_partition(before, blocks, after, stages)
    elif method.startswith(CUSTOM):
        found = custom(method, total, stages)
    else:
        costs = _costs(model, method, measured_costs)
        found = balanced([sum(costs[first:end]) for first, end in pairwise(inside)], stages)
    return tuple(inside[boundary] for boundary in found)


def default_method(model: Model) -> str:
    """The partition where none is named."""
    return "uniform_transformer" if isinstance(model, Transformer) else "flops"


def shards_of(model: Model, shard_count: int | None = None) -> tuple[int, ...]:
    """The boundaries of the shards, in layers; without `shard_count`, the model's own rule."""
    count = model.default_shard_count if shard_count is None else shard_count
    layers = model.layers
    return tuple(range(len(layers) + 1)) if count is None else shards([each.parameters for each in layers], count)


def with_measured_costs(experiment: Experiment, costs: Sequence[float], shard_count: int | None) -> Experiment:
    """The experiment with the partition that balances these times of its layers."""
    found = partition_of(experiment.model, MEASURED, experiment.degrees.pipeline, shard_count, costs)
    return replace(experiment, partition=found)


def experiment_of(
    name: str,
    sizes: Mapping[str, int | None],
    *,
    method: str,
    shard_count: int | None,
    degrees: Degrees,
    microbatch_size: int,
    schedule: str,
) -> Experiment:
    """The experiment of these options.

    Args:
        name: Name of the model.
        sizes: Other sizes than the published ones; None keeps it.
        method: Name of the partition.
        shard_count: Upper bound of the number of shards.
        degrees: Numbers of ranks.
        microbatch_size: Samples of a microbatch.
        schedule: One of `SCHEDULES`.

    Raises:
        UsageError: An option is not valid.
    """
    published = model_named(name)
    model = narrowed(published, **sizes)
    if microbatch_size < 1:
        raise UsageError(f"microbatch_size: found {microbatch_size}, expected 1 or more")
    if schedule not in SCHEDULES:
        raise UsageError(f"--train-schedule: found {schedule!r}, expected one of {', '.join(SCHEDULES)}")
    changed = tuple((key, value) for key, value in sizes.items() if value not in {None, getattr(published, key, None)})
    full_size = published
    if isinstance(published, Transformer) and isinstance(model, Transformer):
        full_size = replace(published, blocks=model.blocks)
    partition = partition_of(model, method, degrees.pipeline, shard_count)
    return Experiment(model, full_size, changed, method, partition, degrees, microbatch_size, schedule)


def _costs(model: Model, method: str, measured_costs: Sequence[float] | None) -> Sequence[float]:
    if method == "parameters":
        return [float(layer.parameters) for layer in model.layers]
    if method == "flops":
        return [layer.operations for layer in model.layers]
    if method == MEASURED:
        # Before anything is measured, by the operations.
        return [layer.operations for layer in model.layers] if measured_costs is None else measured_costs
    raise UsageError(f"--partition-method: found {method!r}, expected one of {', '.join(METHODS)}")


def _kinds(layers: Sequence[Layer]) -> str:
    kinds = [layer.kind for layer in layers]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
