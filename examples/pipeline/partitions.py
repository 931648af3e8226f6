"""How the layers of a model are divided into the stages of a pipeline.

A partition is a tuple of S + 1 rising numbers: stage s has the layers from the s-th number up to the next one, without
it. The names are those of Merak's ``partition_method``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from wattloop.errors import UsageError

CUSTOM = "custom:"
MEASURED = "measured"
METHODS = ("uniform", "uniform_floor", "uniform_transformer", "parameters", "flops", MEASURED, f"{CUSTOM}0,8,…")


def uniform(layers: int, stages: int) -> tuple[int, ...]:
    """Stages whose numbers of layers differ by one at most; the larger ones are first.

    Raises:
        UsageError: A stage would have no layer.

    Example:
        >>> uniform(26, 4)
        (0, 7, 14, 20, 26)
    """
    _require_layers(layers, stages)
    size, larger = divmod(layers, stages)
    return tuple(stage * size + min(stage, larger) for stage in range(stages + 1))


def uniform_floor(layers: int, stages: int) -> tuple[int, ...]:
    """Stages of ⌊layers / stages⌋ layers; the last one has the remaining ones too.

    Raises:
        UsageError: A stage would have no layer.

    Example:
        >>> uniform_floor(26, 4)
        (0, 6, 12, 18, 26)
    """
    _require_layers(layers, stages)
    return (*(layers // stages * stage for stage in range(stages)), layers)


def uniform_transformer(before: int, blocks: int, after: int, stages: int) -> tuple[int, ...]:
    """The transformer blocks divided as by `uniform`, what is before in the first stage, what is after in the last.

    Args:
        before: Number of layers before the blocks, such as embeddings.
        blocks: Number of transformer blocks; 0 for a model without any.
        after: Number of layers after them, such as the head.
        stages: Number of stages.

    Raises:
        UsageError: The model has no transformer blocks, or fewer than stages.

    Example:
        >>> uniform_transformer(2, 24, 1, 4)
        (0, 8, 14, 20, 27)
    """
    if not blocks:
        raise UsageError("uniform_transformer: found a model without transformer blocks, expected uniform or flops")
    inner = uniform(blocks, stages)[1:-1]
    return (0, *(before + boundary for boundary in inner), before + blocks + after)


def balanced(costs: Sequence[float], stages: int) -> tuple[int, ...]:
    """The partition whose most costly stage costs least; among those, the first stages are as small as possible.

    Args:
        costs: The cost of each layer: its time, its parameters or its operations.
        stages: Number of stages.

    Raises:
        UsageError: A stage would have no layer.

    Example:
        >>> balanced([3, 1, 1, 1, 3], 3)
        (0, 1, 4, 5)
    """
    _require_layers(len(costs), stages)
    sums = (0.0, *accumulate(costs))
    # The cost of the most costly stage of the layers from the first to the last, with the stages counted so far.
    least = [sums[-1] - each for each in sums]
    cuts: list[list[int]] = []
    for following in range(1, stages):
        choices = [
            min((max(sums[cut] - sums[first], least[cut]), cut) for cut in range(first + 1, len(costs) - following + 1))
            for first in range(len(costs) - following)
        ]
        least = [cost for cost, _ in choices]
        cuts.append([cut for _, cut in choices])
    boundaries = [0]
    for found in reversed(cuts):
        boundaries.append(found[boundaries[-1]])
    return (*boundaries, len(costs))


def custom(method: str, layers: int, stages: int) -> tuple[int, ...]:
    """The partition that a name such as ``custom:0,8,14,20,26`` states.

    Raises:
        UsageError: It is not whole numbers, leaves layers out, has a stage without layers, or is of another number of
            stages or layers. The message has a partition that would be valid.

    Example:
        >>> custom("custom:0,8,14,20,26", 26, 4)
        (0, 8, 14, 20, 26)
    """
    valid = partition_text(uniform(layers, stages))
    example = f"expected {stages + 1} rising whole numbers from 0 to {layers}, such as {valid}"
    words = method.removeprefix(CUSTOM).split(",")
    if not all(word.strip().isascii() and word.strip().isdecimal() for word in words):
        raise UsageError(f"{method}: found something else than whole numbers between commas, {example}")
    found = tuple(int(word) for word in words)
    if len(found) != stages + 1:
        raise UsageError(f"{method}: found {len(found) - 1} stages, but --pp is {stages}, {example}")
    if found[0] != 0:
        raise UsageError(f"{method}: {_range_text(0, found[0])} in no stage, {example}")
    for stage, (first, end) in enumerate(pairwise(found)):
        if end <= first:
            raise UsageError(f"{method}: stage {stage} from layer {first} to {end} has no layers, {example}")
    if found[-1] < layers:
        raise UsageError(f"{method}: {_range_text(found[-1], layers)} in no stage, {example}")
    if found[-1] > layers:
        raise UsageError(f"{method}: found {found[-1]} layers, but the model has {layers}, {example}")
    return found


def shards(parameters: Sequence[int], shard_count: int) -> tuple[int, ...]:
    """Joins layers into shards: a shard ends with the layer that takes it above the mean, all parameters / shard_count.

    Args:
        parameters: Number of parameters of each layer.
        shard_count: Upper bound of the number of shards.

    Returns:
        The boundaries of the shards, as of a partition.

    Raises:
        UsageError: `shard_count` is below 1.

    Example:
        >>> shards([1, 6, 2, 7, 1], 3)
        (0, 2, 4, 5)
    """
    if shard_count < 1:
        raise UsageError(f"--shard-count: found {shard_count}, expected 1 or more")
    mean = sum(parameters) / shard_count
    boundaries, inside = [0], 0
    for layer, count in enumerate(parameters, start=1):
        inside += count
        if inside > mean:
            boundaries.append(layer)
            inside = 0
    if boundaries[-1] != len(parameters):
        boundaries.append(len(parameters))
    return tuple(boundaries)


def partition_text(partition: Sequence[int]) -> str:
    """The name by which `custom` makes this partition."""
    return CUSTOM + ",".join(map(str, partition))


def _range_text(first: int, end: int) -> str:
    return f"layer {first} is" if end == first + 1 else f"layers {first} to {end - 1} are"


def _require_layers(layers: int, stages: int) -> None:
    if not 1 <= stages <= layers:
        raise UsageError(f"--pp: found {stages} stages for {layers} layers, expected 1 to {layers}")
