"""The published models of examples/pipeline: parameters, batch sizes, layers and partitions, without PyTorch.

That the layers in PyTorch have these parameters, tests/integrations/test_published_models.py shows.
"""

from itertools import pairwise

import pytest
from experiment import partition_of
from model_catalogue import PUBLISHED_WIDTHS, TRANSFORMERS, model_named, narrowed, parameter_count, published_count

from wattloop.errors import UsageError

# Millions of parameters, global batch size: the README of ml-energy/merak-zeus. bert-huge: the Perseus artefact.
PUBLISHED = {
    "bert-base-uncased": (109.43, 256),
    "bert-large-uncased": (334.95, 256),
    "bert-huge-uncased": (1276.40, 256),
    "gpt3-small": (124.44, 512),
    "gpt3-medium": (354.82, 512),
    "gpt3-large": (758.73, 512),
    "gpt3-xl": (1313.63, 1024),
    "gpt3-2.7b": (2648.93, 1024),
    "gpt3-6.7b": (6654.21, 2048),
    "gpt3-13b": (12848.14, 2048),
    "gpt3-175b": (174591.68, 3200),
    "wide-resnet50_2": (68.88, 1536),
    "wide-resnet50_4": (223.44, 1536),
    "wide-resnet50_8": (804.16, 1536),
    "wide-resnet101_2": (126.89, 1536),
    "wide-resnet101_4": (419.63, 1536),
    "wide-resnet101_8": (1517.37, 1536),
}
# The commands of the Perseus artefact.
PARTITIONS = [
    ("bert-huge-uncased", "custom:0,8,14,20,26"),
    ("gpt3-xl", "custom:0,8,14,21,27"),
    ("wide-resnet101_8", "custom:0,7,16,25,34"),
    ("wide-resnet101_8", "custom:0,4,9,13,17,21,25,30,34"),
]


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_batch_size_are_the_published_ones(name: str) -> None:
    model = model_named(name)
    millions, batch_size = PUBLISHED[name]
    assert round(published_count(model) / 1e6, 2) == millions == model.published_millions
    assert model.global_batch_size == batch_size
    # The published counts of these two leave out the biases of linear layers.
    if name not in {"bert-base-uncased", "bert-large-uncased"}:
        assert published_count(model) == parameter_count(model)


def test_every_published_model_is_checked() -> None:
    names = {each.name for each in TRANSFORMERS} | {f"wide-resnet{depth}_{width}" for depth, width in PUBLISHED_WIDTHS}
    assert names == set(PUBLISHED)


@pytest.mark.parametrize(("name", "method"), PARTITIONS)
def test_the_published_partitions_fit(name: str, method: str) -> None:
    model = model_named(name)
    found = partition_of(model, method, method.count(","), None)
    assert found[-1] == len(model.layers)
    # Of a Wide-ResNet, the stem and the first bottleneck are one.
    joined = 0 if found[-1] == int(method.rsplit(",", maxsplit=1)[-1]) else 1
    assert [each - joined for each in found[1:]] == [int(word) for word in method.split(",")[1:]]


@pytest.mark.parametrize("name", ["wide-resnet50_1", "wide-resnet101_16"])
def test_a_wide_resnet_has_any_width(name: str) -> None:
    model = model_named(name)
    assert model.published_millions is None
    for method in ("uniform", "uniform_floor", "parameters", "flops", "measured"):
        assert all(first < end for first, end in pairwise(partition_of(model, method, 4, None)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt2", "model: found 'gpt2', expected one of bert-base-uncased, .*, or wide-resnet50_2 or .* of any width"),
        ("wide-resnet34_2", "found depth 34 and width 2, expected depth 50 or 101 and a width from 1 on"),
        ("wide-resnet50_0", "found depth 50 and width 0"),
    ],
)
def test_another_model_is_refused_with_those_that_there_are(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        model_named(name)


def test_a_size_that_the_model_does_not_have_is_refused() -> None:
    with pytest.raises(
        UsageError, match="--hidden-size: wide-resnet50_2 has no such size, expected one of --image-size"
    ):
        narrowed(model_named("wide-resnet50_2"), hidden_size=32)
    with pytest.raises(UsageError, match="--hidden-size: found 50, expected a multiple of --heads 12"):
        narrowed(model_named("gpt3-small"), hidden_size=50)
    with pytest.raises(UsageError, match="--blocks: found 0, expected 1 or more"):
        narrowed(model_named("gpt3-small"), blocks=0)


def test_uniform_transformer_is_for_transformers_whose_blocks_are_single() -> None:
    with pytest.raises(UsageError, match="found a model without transformer blocks, expected uniform or flops"):
        partition_of(model_named("wide-resnet50_2"), "uniform_transformer", 4, None)
    with pytest.raises(UsageError, match=r"--shard-count: found 8, which joins the 27 layers to . shards"):
        partition_of(model_named("gpt3-xl"), "uniform_transformer", 4, 8)
    assert partition_of(model_named("gpt3-xl"), "uniform_transformer", 4, None) == (0, 8, 14, 20, 27)


def test_fewer_shards_are_joined_layers() -> None:
    model = model_named("gpt3-xl")
    found = partition_of(model, "uniform", 4, 8)
    assert found[-1] == len(model.layers)
    with pytest.raises(UsageError, match=r"--pp: found 4 stages for . layers"):
        partition_of(model, "uniform", 4, 3)
    with pytest.raises(UsageError, match="--partition-method: found 'autopipe', expected one of uniform, "):
        partition_of(model, "autopipe", 4, None)
