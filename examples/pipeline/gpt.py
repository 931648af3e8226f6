"""A small GPT in stages, and text from a fixed random source that it can learn."""

from __future__ import annotations

import torch
from torch import nn

VOCABULARY = 32
CONTEXT = 16
WIDTH = 32
HEADS = 2
BLOCKS = 8


class Block(nn.Module):
    """Causal attention, and a network for each position."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.attention_inputs = nn.Linear(WIDTH, 3 * WIDTH)
        self.attention_output = nn.Linear(WIDTH, WIDTH)
        self.network = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Values of shape (samples, CONTEXT, WIDTH)."""
        samples, context, _ = values.shape
        shape = (samples, context, 3, HEADS, WIDTH // HEADS)
        query, key, value = self.attention_inputs(self.norms[0](values)).view(shape).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        values = values + self.attention_output(attended.transpose(1, 2).reshape(samples, context, WIDTH))
        return values + self.network(self.norms[1](values))


class Embedding(nn.Module):
    """Vectors of tokens and of their positions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens of shape (samples, CONTEXT)."""
        return self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]


def stage(number: int, stages: int) -> nn.Module:
    """One of the stages: the first has the embedding, the last one the output over the vocabulary."""
    blocks = [Block() for _ in range(BLOCKS * number // stages, BLOCKS * (number + 1) // stages)]
    first = [Embedding()] if number == 0 else []
    last = [nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)] if number == stages - 1 else []
    return nn.Sequential(*first, *blocks, *last)


def loss(scores: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the next tokens."""
    return nn.functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())


def sequences(samples: int, random: torch.Generator) -> torch.Tensor:
    """Text of a source in which a token depends on the one before it, of shape (samples, CONTEXT + 1)."""
    source = torch.Generator().manual_seed(11)
    likely = torch.softmax(4 * torch.randn(VOCABULARY, VOCABULARY, generator=source), dim=1)
    tokens = torch.randint(VOCABULARY, (samples, 1), generator=random)
    for _ in range(CONTEXT):
        following = torch.multinomial(likely[tokens[:, -1]], 1, generator=random)
        tokens = torch.cat([tokens, following], dim=1)
    return tokens
