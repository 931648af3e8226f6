"""Gradients of micro-batches of 16 samples, accumulated to the batch size."""

from __future__ import annotations

import numpy as np
from device import train_on

import wattloop

MICRO_BATCH = 16


def main() -> None:
    data = np.random.default_rng(2)
    inputs = data.normal(size=(1300, 12))
    labels = (inputs @ data.normal(size=12) > 0).astype(float)
    inputs *= np.linspace(0.1, 2, 12)
    weights = np.zeros(12)
    with wattloop.Run(batch_size=128, max_epochs=60) as run:
        shuffled = np.random.default_rng(run.seed)
        for _epoch in run.epochs():
            order, gradient, seen = shuffled.permutation(1024), np.zeros(12), 0
            for start in range(0, 1024, MICRO_BATCH):
                part = order[start : start + MICRO_BATCH]
                predicted = 1 / (1 + np.exp(-inputs[part] @ weights))
                gradient += inputs[part].T @ (predicted - labels[part])
                seen += len(part)
                train_on(len(part))
                if seen >= run.batch_size:
                    weights -= 0.3 * gradient / seen
                    gradient, seen = np.zeros(12), 0
                    run.step(run.batch_size)
            run.report(metric=float(np.mean((inputs[1024:] @ weights > 0) == labels[1024:])))


if __name__ == "__main__":
    main()
