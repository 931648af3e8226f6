"""A training whose storage fails in the fifth epoch of its second night."""

from __future__ import annotations

from pathlib import Path

from device import train_on

import wattloop


def main() -> None:
    nights = Path("nights")
    night = len(nights.read_text()) if nights.exists() else 0
    nights.write_text("*" * (night + 1))
    with wattloop.Run(batch_size=64, max_epochs=40) as run:
        for epoch in run.epochs():
            for _ in range(640 // run.batch_size):
                train_on(run.batch_size)
                run.step(run.batch_size)
            if night == 1 and epoch == 4:
                raise OSError(5, "Input/output error", "/datasets/shard-00017.tar")
            run.report(metric=1 - 0.9 ** ((epoch + 1) * (64 / run.batch_size) ** 0.5))


if __name__ == "__main__":
    main()
