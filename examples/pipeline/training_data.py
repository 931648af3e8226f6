"""Samples for the published models: text and images made at run time, or the text of a folder."""

from __future__ import annotations

from pathlib import Path

import torch
from model_catalogue import Model, Transformer, WideResNet

from wattloop.errors import InputError, UsageError

# A token is followed by one of so many others, so that there is something to learn.
BRANCHES = 4
MASKED_SHARE = 0.15
# The target of a token that is not predicted, which cross-entropy leaves out.
NOT_PREDICTED = -100
BYTES = 256


class Samples:
    """Makes the samples of one copy of the pipeline; with the same seed and copy, the same ones.

    A transformer's last token stands for a masked one. Text of a folder has a token for each byte.

    Args:
        model: The model.
        folder: Folder of ``*.txt`` files; None: the text is made.
        seed: Of the random choice.
        copy: Number of the copy.

    Raises:
        UsageError: The model has no text, or a vocabulary of fewer tokens than bytes.
        InputError: The folder has no text, or less than a sample.
    """

    def __init__(self, model: Model, folder: str | None, seed: int, copy: int) -> None:
        self._model = model
        self._random = torch.Generator().manual_seed((seed + 7919 * (copy + 1)) % 2**63)
        self._text = None if folder is None else _text(model, Path(folder))

    def draw(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """So many samples: what the first stage gets, and what the last one compares its output with."""
        model = self._model
        if isinstance(model, WideResNet):
            return self._images(model, count)
        length = model.sequence_length
        tokens = self._tokens(model, count, length + model.is_causal)
        if model.is_causal:
            # The strides of the first step hold for all.
            return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        masked = torch.rand(count, length, generator=self._random) < MASKED_SHARE
        # A microbatch without a masked token would have no loss.
        masked[:, 0] = True
        return tokens.masked_fill(masked, model.vocabulary - 1), tokens.masked_fill(~masked, NOT_PREDICTED)

    def _tokens(self, model: Transformer, count: int, length: int) -> torch.Tensor:
        random = self._random
        if self._text is not None:
            starts = torch.randint(len(self._text) - length + 1, (count,), generator=random)
            return torch.stack([self._text[start : start + length] for start in starts.tolist()]).long()
        steps = torch.randint(BRANCHES, (count, length), generator=random)
        tokens = torch.empty(count, length, dtype=torch.long)
        tokens[:, 0] = torch.randint(model.vocabulary, (count,), generator=random)
        for place in range(1, length):
            tokens[:, place] = (3 * tokens[:, place - 1] + steps[:, place]) % model.vocabulary
        return tokens

    def _images(self, model: WideResNet, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        classes = torch.randint(model.classes, (count,), generator=self._random)
        noise = torch.randn(count, 3, model.image_size, model.image_size, generator=self._random)
        # Stripes, whose distance and colour tell the class.
        places = torch.arange(model.image_size).view(1, 1, 1, -1)
        colours = torch.tensor([1.0, 2.0, 3.0]).view(1, 3, 1, 1)
        stripes = torch.sin(
            places * (1 + classes.view(-1, 1, 1, 1) % 17) / 17 + colours * (classes.view(-1, 1, 1, 1) // 17)
        )
        return noise + stripes, classes


def loss(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the predicted tokens or classes."""
    return torch.nn.functional.cross_entropy(scores.flatten(0, -2).float(), targets.flatten())


def _text(model: Model, folder: Path) -> torch.Tensor:
    if not isinstance(model, Transformer):
        raise UsageError(f"--data: found it with {model.name}, expected a transformer; images are made at run time")
    if model.vocabulary < BYTES:
        raise UsageError(f"--data: found --vocabulary {model.vocabulary}, expected {BYTES} or more: a token is a byte")
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise InputError(f"--data {folder}: found no file *.txt")
    content = b"".join(file.read_bytes() for file in files)
    if len(content) <= model.sequence_length:
        raise InputError(f"--data {folder}: found {len(content)} bytes, expected {model.sequence_length + 1} or more")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)
