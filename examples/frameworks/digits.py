"""scikit-learn's handwritten digits, and a convolutional network for them: the same for every framework."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

CLASSES = 10
TRAINING_EXAMPLES = 1437


def data_sets() -> tuple[TensorDataset, TensorDataset]:
    """Images of 1 × 8 × 8 pixels from 0 to 1 with their labels: for training, and for validation."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(7))
    images = torch.tensor(digits.images, dtype=torch.float32)[order].unsqueeze(1) / 16
    labels = torch.tensor(digits.target)[order]
    return (
        TensorDataset(images[:TRAINING_EXAMPLES], labels[:TRAINING_EXAMPLES]),
        TensorDataset(images[TRAINING_EXAMPLES:], labels[TRAINING_EXAMPLES:]),
    )


def convolutional_network() -> nn.Module:
    """Two convolutions and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 2 * 2, CLASSES),
    )


@torch.no_grad()
def accuracy(model: nn.Module, examples: TensorDataset) -> float:
    """Fraction of the examples that the model classifies correctly."""
    images, labels = examples.tensors
    model.eval()
    correct = (model(images).argmax(dim=1) == labels).float().mean().item()
    model.train()
    return correct
