"""Trains a small network on scikit-learn's handwritten digits.

To run it without Wattloop: python examples/digits/train.py

Comments with (wattloop) mark what Wattloop needs: the batch size, a loop over epochs, and a metric.
"""

from __future__ import annotations

import numpy as np
from network import Array, Network
from numpy.typing import NDArray
from simulated_gpu import SimulatedGpu
from sklearn.datasets import load_digits

import wattloop

HIDDEN_UNITS = 32
TRAINING_EXAMPLES = 1437
# Tuned for the default batch size of job.yaml. Other sizes scale it by the square root of their ratio.
LEARNING_RATE = 0.8
MOMENTUM = 0.9


def examples() -> tuple[Array, NDArray[np.int64]]:
    """Pixels from 0 to 1 and labels, in a fixed shuffled order."""
    digits = load_digits()
    order = np.random.default_rng(7).permutation(len(digits.target))
    return digits.data[order] / 16.0, digits.target[order].astype(np.int64)


def main() -> None:
    """Train until the validation accuracy reaches the target."""
    pixels, labels = examples()
    train, validation = slice(0, TRAINING_EXAMPLES), slice(TRAINING_EXAMPLES, None)
    gpu = SimulatedGpu()
    with wattloop.Run(batch_size=1024, max_epochs=60) as run:  # (wattloop) defaults outside Wattloop
        random = np.random.default_rng(run.seed)
        network = Network(pixels.shape[1], HIDDEN_UNITS, 10, random)
        # (wattloop) learning-rate.yaml has the learning rate as a parameter that the policy chooses
        learning_rate = float(run.parameters.get("LEARNING_RATE", LEARNING_RATE)) * run.learning_rate_scale
        for epoch in run.epochs():  # (wattloop) ends at the target or on request of the operator
            order = random.permutation(TRAINING_EXAMPLES)
            for start in range(0, TRAINING_EXAMPLES, run.batch_size):
                batch = order[start : start + run.batch_size]
                network.train_step(pixels[train][batch], labels[train][batch], learning_rate, MOMENTUM)
                gpu.train_step(len(batch))
                run.step(len(batch))  # (wattloop) needed only to measure power limits
            accuracy = network.accuracy(pixels[validation], labels[validation])
            print(f"epoch {epoch + 1} batch_size {run.batch_size} accuracy={accuracy:.4f}", flush=True)
            run.report(metric=accuracy)  # (wattloop)


if __name__ == "__main__":
    main()
