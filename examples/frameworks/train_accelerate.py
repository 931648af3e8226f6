"""Trains a convolutional network on scikit-learn's handwritten digits with Accelerate.

To run it without Wattloop: python examples/frameworks/train_accelerate.py
"""

from __future__ import annotations

import digits
import simulated_gpu
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader

import wattloop
from wattloop.integrations.accelerate import WattloopTracker


def main() -> None:
    """Train until the validation accuracy reaches the target."""
    train, validation = digits.data_sets()
    run = wattloop.Run(batch_size=256, max_epochs=40)
    accelerator = Accelerator(log_with=[WattloopTracker(run, metric="accuracy")])
    accelerator.init_trackers("digits")
    set_seed(run.seed % 2**32)
    network = digits.convolutional_network()
    simulated_gpu.follow(network)
    model, optimizer, train_loader, validation_loader = accelerator.prepare(
        network,
        torch.optim.Adam(network.parameters(), lr=0.01 * run.learning_rate_scale),
        DataLoader(train, batch_size=run.per_device_batch_size, shuffle=True),
        DataLoader(validation, batch_size=60),
    )
    for epoch in run.epochs():
        model.train()
        for images, labels in train_loader:
            optimizer.zero_grad()
            accelerator.backward(torch.nn.functional.cross_entropy(model(images), labels))
            optimizer.step()
            run.step(len(images) * accelerator.num_processes)
        model.eval()
        correct = []
        for images, labels in validation_loader:
            with torch.no_grad():
                predicted = model(images).argmax(dim=1)
            correct.append(accelerator.gather_for_metrics(predicted == labels))
        accuracy = torch.cat(correct).float().mean().item()
        accelerator.print(f"epoch {epoch + 1} accuracy={accuracy:.4f}", flush=True)
        accelerator.log({"accuracy": accuracy}, step=epoch)
    accelerator.end_training()


if __name__ == "__main__":
    main()
