"""A perceptron whose accuracy is taken on so few samples that it jumps up and down."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from device import train_on

import wattloop


def main() -> None:
    nights = Path("nights")
    nights.write_text((nights.read_text() if nights.exists() else "") + "*")
    random = np.random.default_rng(len(nights.read_text()))
    truth = np.random.default_rng(5).normal(size=64)
    weights = random.normal(size=64)
    with wattloop.Run(batch_size=128, max_epochs=40) as run:
        for _epoch in run.epochs():
            for _ in range(1024 // run.batch_size):
                inputs = random.normal(size=(run.batch_size, 64))
                labels = np.sign(inputs @ truth)
                wrong = np.sign(inputs @ weights + 1e-9) != labels
                if wrong.any():
                    weights += 0.1 * (inputs[wrong] * labels[wrong, None]).mean(axis=0)
                train_on(run.batch_size)
                run.step(run.batch_size)
            inputs = random.normal(size=(100, 64))
            run.report(metric=float(np.mean(np.sign(inputs @ weights) == np.sign(inputs @ truth))))


if __name__ == "__main__":
    main()
