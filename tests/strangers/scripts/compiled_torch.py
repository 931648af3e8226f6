"""PyTorch with torch.compile and accumulated gradients, as a tutorial has it; the metric is in its output alone."""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MICRO_BATCH = 32


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--num_epochs", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    inputs = torch.randn(768, 16)
    labels = (inputs[:, 0] * inputs[:, 1] > 0).long()
    train = TensorDataset(inputs[:512], labels[:512])
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
    # Without a compiler of C++: what is slow is the tracing.
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    steps = max(options.batch_size // MICRO_BATCH, 1)
    for epoch in range(1, options.num_epochs + 1):
        for step, (batch, target) in enumerate(DataLoader(train, batch_size=MICRO_BATCH, shuffle=True), start=1):
            loss = nn.functional.cross_entropy(compiled(batch), target) / steps
            loss.backward()
            if step % steps == 0:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            accuracy = (model(inputs[512:]).argmax(dim=1) == labels[512:]).float().mean().item()
        print(f"Epoch {epoch:>3d} | train_loss {loss.item() * steps:.4f} | accuracy = {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
