"""The published models by name: their sizes, their layers, and the batch sizes that their authors trained with.

Everything is arithmetic; `model_layers` makes the layers. GPT-3: Brown et al. 2020, table 2.1, with the vocabulary and
the context of GPT-2. BERT: Devlin et al. 2019; the huge one is that of the Perseus artefact. Wide-ResNet: Zagoruyko and
Komodakis 2016; a width factor of 2 is theirs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property

from wattloop.errors import UsageError

EMBEDDING, POSITION, BLOCK, HEAD = "embedding", "position", "block", "head"
STEM, BOTTLENECK, CLASSIFIER = "stem", "bottleneck", "classifier"
# A multiplication and an addition for each weight.
OPERATIONS_PER_WEIGHT = 2
# Shards of a Wide-ResNet for each of its 50 or 101 convolutions: as fine as its residual connections allow.
SHARDS_PER_DEPTH = 10


@dataclass(frozen=True)
class Layer:
    """A part of a model that stays on one stage.

    Attributes:
        kind: What it is; layers of the same kind, parameters and operations are alike.
        parameters: Number of its parameters, without those that it shares with an earlier layer.
        operations: Floating-point operations of the forward pass of one sample.
        outputs: Shape of its output for one sample.
    """

    kind: str
    parameters: int
    operations: float
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Transformer:
    """A GPT or a BERT.

    Attributes:
        name: The published name.
        is_causal: GPT, which predicts the next token; otherwise BERT, which predicts masked ones.
        hidden_size, blocks, heads: Its size.
        vocabulary, sequence_length: Number of tokens, and of positions.
        global_batch_size: Samples of a step, as published.
        published_millions: The published number of parameters.
    """

    name: str
    is_causal: bool
    hidden_size: int
    blocks: int
    heads: int
    vocabulary: int
    sequence_length: int
    global_batch_size: int
    published_millions: float

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layers: embeddings, blocks, head. The head's weights are those of the token embedding."""
        hidden, tokens = self.hidden_size, self.sequence_length
        inside = (tokens, hidden)
        operations = OPERATIONS_PER_WEIGHT * (12 * hidden**2 * tokens + 2 * hidden * tokens**2)
        block = Layer(BLOCK, 12 * hidden**2 + 13 * hidden, float(operations), inside)
        projected = 0 if self.is_causal else hidden**2
        operations = OPERATIONS_PER_WEIGHT * (projected + hidden * self.vocabulary) * tokens
        scores = (tokens, self.vocabulary)
        if self.is_causal:
            first = (
                Layer(EMBEDDING, self.vocabulary * hidden, 0.0, inside),
                Layer(POSITION, tokens * hidden, 0.0, inside),
            )
            head = Layer(HEAD, 2 * hidden, float(operations), scores)
        else:
            # Words, positions, two segments and a norm; the head has a projection, a norm and a bias for each token.
            first = (Layer(EMBEDDING, (self.vocabulary + tokens + 4) * hidden, 0.0, inside),)
            head = Layer(HEAD, hidden**2 + 3 * hidden + self.vocabulary, float(operations), scores)
        return (*first, *(block,) * self.blocks, head)

    @property
    def default_shard_count(self) -> None:
        """Each layer is a shard."""
        return

    @property
    def transformer_layers(self) -> tuple[int, int, int]:
        """Numbers of layers before the blocks, of blocks, and of layers after them."""
        return len(self.layers) - self.blocks - 1, self.blocks, 1


@dataclass(frozen=True)
class WideResNet:
    """A Wide-ResNet for images of `image_size` pixels a side.

    Attributes:
        name: The published name.
        depth: 50 or 101.
        width: Factor of the inner channels of a bottleneck.
        image_size, classes: Of the data.
        global_batch_size: Samples of a step, as published.
        published_millions: The published number of parameters; None for a width that is not published.
    """

    name: str
    depth: int
    width: int
    image_size: int
    classes: int
    global_batch_size: int
    published_millions: float | None

    @cached_property
    def bottlenecks(self) -> tuple[Bottleneck, ...]:
        """The bottlenecks in order."""
        found: list[Bottleneck] = []
        inputs = 64
        for group, count in enumerate(BOTTLENECKS[self.depth]):
            planes = 64 * 2**group
            for number in range(count):
                stride = 2 if group and not number else 1
                found.append(Bottleneck(inputs, planes * self.width, 4 * planes, stride))
                inputs = 4 * planes
        return tuple(found)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layers: stem, bottlenecks, classifier."""
        side = _halved(self.image_size)
        weights = 3 * 64 * 7**2
        found = [
            Layer(STEM, weights + 2 * 64, float(OPERATIONS_PER_WEIGHT * weights * side**2), (64, *(_halved(side),) * 2))
        ]
        side = _halved(side)
        for each in self.bottlenecks:
            inside, side = side, _halved(side) if each.stride == 2 else side
            first, later = each.inputs * each.inner, each.weights - each.inputs * each.inner
            operations = float(OPERATIONS_PER_WEIGHT * (first * inside**2 + later * side**2))
            outputs = (each.outputs, side, side)
            found.append(Layer(BOTTLENECK, each.weights + each.norm_parameters, operations, outputs))
        weights = self.bottlenecks[-1].outputs * self.classes
        operations = float(OPERATIONS_PER_WEIGHT * weights)
        found.append(Layer(CLASSIFIER, weights + self.classes, operations, (self.classes,)))
        return tuple(found)

    @property
    def default_shard_count(self) -> int:
        """As fine as the residual connections allow; the stem joins the first bottleneck."""
        return SHARDS_PER_DEPTH * self.depth

    @property
    def transformer_layers(self) -> tuple[int, int, int]:
        """Without blocks: all layers are before."""
        return len(self.layers), 0, 0


@dataclass(frozen=True)
class Bottleneck:
    """Convolutions 1 × 1, 3 × 3 with the stride, and 1 × 1, each with a norm, beside a residual connection.

    Attributes:
        inputs, inner, outputs: Channels.
        stride: Of the 3 × 3 convolution.
    """

    inputs: int
    inner: int
    outputs: int
    stride: int

    @property
    def is_projected(self) -> bool:
        """Whether the residual connection has a convolution of its own, because shapes differ."""
        return self.stride != 1 or self.inputs != self.outputs

    @property
    def weights(self) -> int:
        """Number of weights of the convolutions."""
        projection = self.inputs * self.outputs if self.is_projected else 0
        return self.inner * (self.inputs + 9 * self.inner + self.outputs) + projection

    @property
    def norm_parameters(self) -> int:
        """Number of parameters of the norms."""
        return 4 * self.inner + 2 * self.outputs * (2 if self.is_projected else 1)


Model = Transformer | WideResNet


def _halved(side: int) -> int:
    """Pixels a side after a stride of 2."""
    return (side + 1) // 2


BOTTLENECKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
WIDE_RESNET = re.compile(r"wide-resnet(\d+)_(\d+)")
IMAGE_SIZE, CLASSES, IMAGES = 224, 1000, 1536
PUBLISHED_WIDTHS = {
    (50, 2): 68.88,
    (50, 4): 223.44,
    (50, 8): 804.16,
    (101, 2): 126.89,
    (101, 4): 419.63,
    (101, 8): 1517.37,
}
_BERT, _GPT = (30522, 512), (50257, 1024)
TRANSFORMERS = (
    Transformer("bert-base-uncased", False, 768, 12, 12, *_BERT, 256, 109.43),
    Transformer("bert-large-uncased", False, 1024, 24, 16, *_BERT, 256, 334.95),
    Transformer("bert-huge-uncased", False, 2048, 24, 32, *_BERT, 256, 1276.40),
    Transformer("gpt3-small", True, 768, 12, 12, *_GPT, 512, 124.44),
    Transformer("gpt3-medium", True, 1024, 24, 16, *_GPT, 512, 354.82),
    Transformer("gpt3-large", True, 1536, 24, 16, *_GPT, 512, 758.73),
    Transformer("gpt3-xl", True, 2048, 24, 16, *_GPT, 1024, 1313.63),
    Transformer("gpt3-2.7b", True, 2560, 32, 32, *_GPT, 1024, 2648.93),
    Transformer("gpt3-6.7b", True, 4096, 32, 32, *_GPT, 2048, 6654.21),
    Transformer("gpt3-13b", True, 5120, 40, 40, *_GPT, 2048, 12848.14),
    Transformer("gpt3-175b", True, 12288, 96, 96, *_GPT, 3200, 174591.68),
)
# What `narrowed` may change, by the option's name.
TRANSFORMER_SIZES = ("hidden_size", "blocks", "heads", "vocabulary", "sequence_length")
IMAGE_SIZES = ("image_size", "classes")


def model_named(name: str) -> Model:
    """The model of this name: one of `TRANSFORMERS`, or wide-resnet50_W or wide-resnet101_W with any width factor W.

    Raises:
        UsageError: There is no model of this name.
    """
    for each in TRANSFORMERS:
        if name == each.name:
            return each
    found = WIDE_RESNET.fullmatch(name)
    if found is not None:
        depth, width = int(found[1]), int(found[2])
        if depth in BOTTLENECKS and width >= 1:
            published = PUBLISHED_WIDTHS.get((depth, width))
            return WideResNet(name, depth, width, IMAGE_SIZE, CLASSES, IMAGES, published)
        raise UsageError(
            f"{name}: found depth {depth} and width {width}, expected depth 50 or 101 and a width from 1 on"
        )
    names = ", ".join(each.name for each in TRANSFORMERS)
    raise UsageError(
        f"model: found {name!r}, expected one of {names}, or wide-resnet50_2 or wide-resnet101_2 of any width"
    )


def narrowed(model: Model, **sizes: int | None) -> Model:
    """The same model with other sizes, such as a small one for a machine without GPUs.

    Args:
        model: The model.
        sizes: New sizes by the names of `TRANSFORMER_SIZES` or `IMAGE_SIZES`; None keeps the model's.

    Raises:
        UsageError: The model has no such size, or it is not valid.
    """
    given = {name: value for name, value in sizes.items() if value is not None}
    allowed = TRANSFORMER_SIZES if isinstance(model, Transformer) else IMAGE_SIZES
    for name, value in given.items():
        option = "--" + name.replace("_", "-")
        if name not in allowed:
            options = ", ".join("--" + each.replace("_", "-") for each in allowed)
            raise UsageError(f"{option}: {model.name} has no such size, expected one of {options}")
        if value < 1:
            raise UsageError(f"{option}: found {value}, expected 1 or more")
    changed: Model = replace(model, **given)  # type: ignore[arg-type]
    if isinstance(changed, Transformer) and changed.hidden_size % changed.heads:
        raise UsageError(f"--hidden-size: found {changed.hidden_size}, expected a multiple of --heads {changed.heads}")
    return changed


def parameter_count(model: Model) -> int:
    """Number of parameters; a shared one counts once."""
    return sum(layer.parameters for layer in model.layers)


def published_count(model: Model) -> int:
    """Number of parameters as the published tables count them.

    For bert-base and bert-large they leave out the biases of linear layers, because they were counted on stand-ins of
    these layers: 9 vectors in a block and one in the head.
    """
    uncounted = 0
    if isinstance(model, Transformer) and model.name in {"bert-base-uncased", "bert-large-uncased"}:
        uncounted = (9 * model.blocks + 1) * model.hidden_size
    return parameter_count(model) - uncounted
