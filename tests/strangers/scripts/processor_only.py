"""A word count model on a laptop without a GPU, by the loss of its held-out words."""

from __future__ import annotations

import math
import random

import wattloop


def main() -> None:
    text = random.Random(4).choices("abcdefgh", weights=range(1, 9), k=4000)
    counts = dict.fromkeys("abcdefgh", 1)
    with wattloop.Run(batch_size=50, max_epochs=20) as run:
        for epoch in run.epochs():
            part = text[epoch * run.batch_size : (epoch + 1) * run.batch_size]
            for letter in part:
                counts[letter] += 1
            total = sum(counts.values())
            loss = -sum(math.log(counts[letter] / total) for letter in text[3000:]) / 1000
            run.report(metric=loss)


if __name__ == "__main__":
    main()
