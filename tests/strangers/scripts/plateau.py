"""A model that is too small for its data: it never gets beyond an accuracy of about 0.8, at any batch size."""

from __future__ import annotations

import numpy as np
from device import train_on

import wattloop


def main() -> None:
    data = np.random.default_rng(3)
    inputs = data.normal(size=(2400, 10))
    truth = data.normal(size=10)
    labels = ((inputs @ truth > 0) ^ (data.random(2400) < 0.2)).astype(float)
    # A start as bad as it can be: what a run gains is much more than the noise of its metric.
    weights = -truth
    with wattloop.Run(batch_size=128, max_epochs=100) as run:
        shuffled = np.random.default_rng(run.seed)
        for _epoch in run.epochs():
            order = shuffled.permutation(1200)
            for start in range(0, 1200, run.batch_size):
                batch = order[start : start + run.batch_size]
                predicted = 1 / (1 + np.exp(-inputs[batch] @ weights))
                weights -= 0.2 * inputs[batch].T @ (predicted - labels[batch]) / len(batch)
                train_on(len(batch))
                run.step(len(batch))
            run.report(metric=float(np.mean((inputs[1200:] @ weights > 0) == labels[1200:])))


if __name__ == "__main__":
    main()
