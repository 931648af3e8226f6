"""Two processes of one training, each with its own GPU, as a launcher starts them."""

from __future__ import annotations

import os
import subprocess
import sys

from device import train_on

import wattloop


def main() -> None:
    if "RANK" not in os.environ:
        places = [{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
        ranks = [subprocess.Popen([sys.executable, __file__], env={**os.environ, **place}) for place in places]
        sys.exit(max(rank.wait() for rank in ranks))
    rank = int(os.environ["RANK"])
    with wattloop.Run(batch_size=128, max_epochs=40) as run:
        for epoch in run.epochs():
            for _ in range(0, 1024, run.batch_size):
                train_on(run.batch_size // 2, gpu=rank)
                run.step(run.batch_size // 2)
            run.report(metric=1 - 0.85 ** ((epoch + 1) * (64 / run.batch_size) ** 0.4))


if __name__ == "__main__":
    main()
