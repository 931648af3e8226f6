"""A training on all data so far: each night has 3 % more of it than the one before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from device import train_on

import wattloop


def main() -> None:
    nights = Path("nights")
    night = len(nights.read_text()) if nights.exists() else 0
    nights.write_text("*" * (night + 1))
    rows = int(1000 * 1.03**night)
    data = np.random.default_rng(8)
    inputs = data.normal(size=(rows + 400, 24))
    labels = (inputs @ np.linspace(-1, 1, 24) > 0).astype(float)
    inputs *= np.geomspace(0.2, 2, 24)
    weights = np.zeros(24)
    with wattloop.Run(batch_size=250, max_epochs=80) as run:
        shuffled = np.random.default_rng(run.seed)
        for _epoch in run.epochs():
            order = shuffled.permutation(rows)
            for start in range(0, rows, run.batch_size):
                batch = order[start : start + run.batch_size]
                predicted = 1 / (1 + np.exp(-inputs[batch] @ weights))
                weights -= 0.1 * inputs[batch].T @ (predicted - labels[batch]) / len(batch)
                train_on(len(batch))
                run.step(len(batch))
            run.report(metric=float(np.mean((inputs[rows:] @ weights > 0) == labels[rows:])))


if __name__ == "__main__":
    main()
