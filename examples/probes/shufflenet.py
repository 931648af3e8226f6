"""ShuffleNetV2 (Ma et al., 2018) for small images, with a dropout before its last layer; and images to train on."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

CLASSES = 10
PIXELS = 16


def convolution(inputs: int, outputs: int, size: int, stride: int = 1, *, depthwise: bool = False) -> nn.Sequential:
    """A convolution with batch normalisation; a depthwise one has no activation."""
    groups = inputs if depthwise else 1
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *(() if depthwise else (nn.ReLU(inplace=True),)))


class Unit(nn.Module):
    """Half of the channels pass as they are, or, if the unit halves the image, through a branch of their own."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half = outputs // 2
        taken = inputs if stride == 2 else half
        self.stride = stride
        self.branch = nn.Sequential(
            convolution(taken, half, 1), convolution(half, half, 3, stride, depthwise=True), convolution(half, half, 1)
        )
        self.shortcut = nn.Sequential(
            *((convolution(taken, taken, 3, 2, depthwise=True), convolution(taken, half, 1)) if stride == 2 else ())
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Pass images through the unit."""
        kept, changed = (images, images) if self.stride == 2 else images.chunk(2, dim=1)
        joined = torch.stack((self.shortcut(kept), self.branch(changed)), dim=2)
        # The channels of both halves alternate, so that the next unit mixes them.
        return joined.flatten(1, 2)


class ShuffleNetV2(nn.Module):
    """Two stages of units.

    Args:
        dropout: Probability of the dropout.
        widths: Channels of the stem and of each stage.
        repeats: Units of each stage.
    """

    def __init__(
        self, dropout: float, widths: tuple[int, ...] = (16, 32, 64), repeats: tuple[int, ...] = (2, 2)
    ) -> None:
        super().__init__()
        units: list[nn.Module] = [convolution(3, widths[0], 3)]
        for inputs, outputs, count in zip(widths, widths[1:], repeats, strict=False):
            units += [Unit(inputs, outputs, stride=2), *(Unit(outputs, outputs, stride=1) for _ in range(count - 1))]
        self.features = nn.Sequential(*units)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(widths[-1], CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The scores of the classes."""
        return self.classifier(self.dropout(self.features(images).mean(dim=(2, 3))))


def made_images(count: int, seed: int) -> TensorDataset:
    """Images of the classes, each a pattern of its own under noise."""
    patterns = torch.randn(CLASSES, 3, PIXELS, PIXELS, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    noise = torch.randn(count, 3, PIXELS, PIXELS, generator=generator)
    return TensorDataset(0.5 * patterns[labels] + noise, labels)
