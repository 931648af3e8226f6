"""Trains a convolutional network on scikit-learn's handwritten digits with PyTorch.

To run it without Wattloop: python examples/frameworks/train_pytorch.py
"""

from __future__ import annotations

import digits
import simulated_gpu
import torch
from torch.utils.data import DataLoader

import wattloop
from wattloop.integrations.pytorch import scale_learning_rates


def main() -> None:
    """Train until the validation accuracy reaches the target."""
    train, validation = digits.data_sets()
    with wattloop.Run(batch_size=256, max_epochs=40) as run:
        torch.manual_seed(run.seed)
        loader = DataLoader(train, batch_size=run.batch_size, shuffle=True)
        model = digits.convolutional_network()
        simulated_gpu.follow(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scale_learning_rates(optimizer, run)
        for epoch in run.epochs():
            for images, labels in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
                run.step(len(images))
            accuracy = digits.accuracy(model, validation)
            print(f"epoch {epoch + 1} batch_size {run.batch_size} accuracy={accuracy:.4f}", flush=True)
            run.report(metric=accuracy)


if __name__ == "__main__":
    main()
