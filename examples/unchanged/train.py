"""Trains a convolutional network on scikit-learn's handwritten digits, and knows nothing of Wattloop.

To run it: python examples/unchanged/train.py --batch-size 64 --epochs 20
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def network() -> nn.Module:
    """A convolution and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 10),
    )


def main() -> None:
    """Train for some epochs, and print the accuracy after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(
        torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16,
        torch.tensor(labels),
    )
    train, validation = random_split(data, [0.8, 0.2])
    loader = DataLoader(train, batch_size=options.batch_size, shuffle=True)
    inputs, expected = (each.to(device) for each in next(iter(DataLoader(validation, batch_size=len(validation)))))
    model = network().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for epoch in range(1, options.epochs + 1):
        for batch, target in loader:
            loss = nn.functional.cross_entropy(model(batch.to(device)), target.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (model(inputs).argmax(dim=1) == expected).float().mean().item()
        print(f"Epoch {epoch}/{options.epochs} - loss: {loss.item():.4f} - accuracy: {accuracy:.4f}")


if __name__ == "__main__":
    main()
