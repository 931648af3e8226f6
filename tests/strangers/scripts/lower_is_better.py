"""Linear regression by its validation loss, of which less is better."""

from __future__ import annotations

import os

import numpy as np
from device import train_on


def main() -> None:
    batch_size = int(os.environ.get("WATTLOOP_BATCH_SIZE", "64"))
    data = np.random.default_rng(11)
    inputs = data.normal(size=(900, 8))
    targets = inputs @ data.normal(size=8) + 0.1 * data.normal(size=900)
    weights, shuffled = np.zeros(8), np.random.default_rng(os.getpid())
    for epoch in range(80):
        order = shuffled.permutation(768)
        for start in range(0, 768, batch_size):
            batch = order[start : start + batch_size]
            weights -= 0.05 * inputs[batch].T @ (inputs[batch] @ weights - targets[batch]) / len(batch)
            train_on(len(batch))
        loss = float(np.mean((inputs[768:] @ weights - targets[768:]) ** 2))
        print({"epoch": epoch + 1, "val_loss": round(loss, 5)}, flush=True)


if __name__ == "__main__":
    main()
