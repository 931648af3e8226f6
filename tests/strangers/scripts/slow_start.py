"""Logistic regression whose first epoch compiles the model, which takes as long as thirty epochs."""

from __future__ import annotations

import numpy as np
from device import train_on, wait_for

import wattloop

COMPILE_SECONDS = 300.0


def main() -> None:
    data = np.random.default_rng(1)
    inputs = data.normal(size=(1200, 20))
    labels = (inputs @ data.normal(size=20) > 0).astype(float)
    weights = np.zeros(20)
    with wattloop.Run(batch_size=256, max_epochs=60) as run:
        shuffled = np.random.default_rng(run.seed)
        for epoch in run.epochs():
            if epoch == 0:
                wait_for(COMPILE_SECONDS)
            order = shuffled.permutation(1000)
            for start in range(0, 1000, run.batch_size):
                batch = order[start : start + run.batch_size]
                predicted = 1 / (1 + np.exp(-inputs[batch] @ weights))
                weights -= 0.1 * inputs[batch].T @ (predicted - labels[batch]) / len(batch)
                train_on(len(batch))
                run.step(len(batch))
            accuracy = float(np.mean((inputs[1000:] @ weights > 0) == labels[1000:]))
            print(f"epoch {epoch}: {accuracy}")
            run.report(metric=accuracy)


if __name__ == "__main__":
    main()
