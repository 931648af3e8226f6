"""The layers of a published model in PyTorch, with random weights; blocks are those of Transformers.

A layer's weights depend on the seed and its number alone. So they are the same in each partition and in each copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from model_catalogue import (
    BLOCK,
    BOTTLENECK,
    CLASSIFIER,
    EMBEDDING,
    HEAD,
    POSITION,
    STEM,
    Bottleneck,
    Model,
    Transformer,
    WideResNet,
)
from torch import nn

STANDARD_DEVIATION = 0.02
MAX_SEED = 2**63


def make_layer(model: Model, number: int, device: torch.device, seed: int) -> nn.Module:
    """A layer of a model.

    Args:
        model: The model.
        number: Number of the layer in `model.layers`.
        device: Where its parameters are; ``meta`` makes none.
        seed: Of the weights.
    """
    with device:
        torch.manual_seed((seed + number) % MAX_SEED)
        layer = _layer(model, number)
        if isinstance(model, Transformer):
            torch.manual_seed((seed + number) % MAX_SEED)
            for weight in layer.parameters():
                if weight.dim() > 1:
                    nn.init.normal_(weight, std=STANDARD_DEVIATION)
    if isinstance(layer, TokenHead):
        # Those of the token embedding, which is layer 0 and draws its weights first.
        torch.manual_seed(seed % MAX_SEED)
        nn.init.normal_(layer.weight, std=STANDARD_DEVIATION)
    return layer


def make_stage(
    model: Model, numbers: Iterable[int], device: torch.device, seed: int, dtype: torch.dtype
) -> nn.ModuleList:
    """The layers of a stage; an embedding and a head on one stage share their weights."""
    layers = nn.ModuleList([make_layer(model, number, device, seed) for number in numbers]).to(dtype)
    embedding, head = embedding_weight(layers), head_of(layers)
    if embedding is not None and head is not None:
        head.weight = embedding
    return layers


def embedding_weight(layers: Iterable[nn.Module]) -> nn.Parameter | None:
    """The weights of the token embedding; None without one."""
    for layer in layers:
        if isinstance(layer, TokenEmbedding):
            return layer.tokens.weight
        if isinstance(layer, BertEmbedding):
            return layer.embeddings.word_embeddings.weight  # type: ignore[no-any-return]
    return None


def head_of(layers: Iterable[nn.Module]) -> TokenHead | None:
    """The head of a transformer; None without one."""
    return next((layer for layer in layers if isinstance(layer, TokenHead)), None)


class TokenEmbedding(nn.Module):
    """A vector of each token."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.tokens = nn.Embedding(model.vocabulary, model.hidden_size)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens of shape (samples, positions)."""
        return self.tokens(tokens)


class PositionEmbedding(nn.Module):
    """Adds a vector of each position."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.positions = nn.Embedding(model.sequence_length, model.hidden_size)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Values of shape (samples, positions, hidden size)."""
        return values + self.positions.weight[: values.shape[1]]


class BertEmbedding(nn.Module):
    """The embeddings of BERT: of tokens, positions and segments."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        from transformers.models.bert.modeling_bert import BertEmbeddings  # noqa: PLC0415

        self.embeddings = BertEmbeddings(bert_configuration(model))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens of shape (samples, positions)."""
        return self.embeddings(tokens)


class TransformerBlock(nn.Module):
    """A block of Transformers, called with its values alone."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Values of shape (samples, positions, hidden size)."""
        found: Any = self.block(values)
        return found[0] if isinstance(found, tuple) else found


class TokenHead(nn.Module):
    """Scores of each token, with the weights of the token embedding."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(model.vocabulary, model.hidden_size))
        self.bias: nn.Parameter | None = None
        self.transform: nn.Module
        if model.is_causal:
            self.transform = nn.LayerNorm(model.hidden_size, eps=gpt_configuration(model).layer_norm_epsilon)
        else:
            from transformers.models.bert.modeling_bert import BertPredictionHeadTransform  # noqa: PLC0415

            self.transform = BertPredictionHeadTransform(bert_configuration(model))
            self.bias = nn.Parameter(torch.zeros(model.vocabulary))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Values of shape (samples, positions, hidden size)."""
        return nn.functional.linear(self.transform(values), self.weight, self.bias)


class ImageStem(nn.Sequential):
    """The layers before the first bottleneck."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            norm(64),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )


class ImageBottleneck(nn.Module):
    """A bottleneck with its residual connection."""

    def __init__(self, shape: Bottleneck) -> None:
        super().__init__()
        inputs, inner, outputs = shape.inputs, shape.inner, shape.outputs
        self.convolutions = nn.Sequential(
            nn.Conv2d(inputs, inner, 1, bias=False),
            norm(inner),
            nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride=shape.stride, padding=1, bias=False),
            norm(inner),
            nn.ReLU(),
            nn.Conv2d(inner, outputs, 1, bias=False),
            norm(outputs),
        )
        self.residual: nn.Module = nn.Identity()
        if shape.is_projected:
            projection = nn.Conv2d(inputs, outputs, 1, stride=shape.stride, bias=False)
            self.residual = nn.Sequential(projection, norm(outputs))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Values of shape (samples, channels, height, width)."""
        return nn.functional.relu(self.convolutions(values) + self.residual(values))


class ImageClassifier(nn.Module):
    """Scores of each class."""

    def __init__(self, model: WideResNet) -> None:
        super().__init__()
        self.scores = nn.Linear(model.bottlenecks[-1].outputs, model.classes)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Values of shape (samples, channels, height, width)."""
        return self.scores(values.mean(dim=(2, 3)))


def norm(channels: int) -> nn.BatchNorm2d:
    """A norm without running statistics, in which a forward pass that is computed again would count twice."""
    return nn.BatchNorm2d(channels, track_running_stats=False)


def gpt_configuration(model: Transformer) -> Any:
    """The configuration of GPT-2; without dropout, because a forward pass that is computed again must be the same."""
    from transformers import GPT2Config  # noqa: PLC0415

    found = GPT2Config(
        vocab_size=model.vocabulary,
        n_positions=model.sequence_length,
        n_embd=model.hidden_size,
        n_layer=model.blocks,
        n_head=model.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    found._attn_implementation = "sdpa"
    return found


def bert_configuration(model: Transformer) -> Any:
    """The configuration of BERT, without dropout for the same reason."""
    from transformers import BertConfig  # noqa: PLC0415

    found = BertConfig(
        vocab_size=model.vocabulary,
        max_position_embeddings=model.sequence_length,
        hidden_size=model.hidden_size,
        intermediate_size=4 * model.hidden_size,
        num_hidden_layers=model.blocks,
        num_attention_heads=model.heads,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=None,
    )
    found._attn_implementation = "sdpa"
    return found


def _layer(model: Model, number: int) -> nn.Module:
    kind = model.layers[number].kind
    if isinstance(model, WideResNet):
        return {
            STEM: ImageStem,
            BOTTLENECK: lambda: ImageBottleneck(model.bottlenecks[number - 1]),
            CLASSIFIER: lambda: ImageClassifier(model),
        }[kind]()
    return {
        EMBEDDING: lambda: TokenEmbedding(model) if model.is_causal else BertEmbedding(model),
        POSITION: lambda: PositionEmbedding(model),
        BLOCK: lambda: TransformerBlock(_block(model, number)),
        HEAD: lambda: TokenHead(model),
    }[kind]()


def _block(model: Transformer, number: int) -> nn.Module:
    if model.is_causal:
        from transformers.models.gpt2.modeling_gpt2 import GPT2Block  # noqa: PLC0415

        return GPT2Block(gpt_configuration(model), layer_idx=number)
    from transformers.models.bert.modeling_bert import BertLayer  # noqa: PLC0415

    return BertLayer(bert_configuration(model), layer_idx=number)
