"""Two processes of one training, each with its own GPU, which exchange their gradients after each step."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.synchronize import Barrier

from device import train_on

import wattloop

RANKS = 2
PEER_SECONDS = 60.0


def main() -> None:
    fork = multiprocessing.get_context("fork")
    gradients = fork.Barrier(RANKS)
    ranks = [fork.Process(target=train, args=(rank, gradients)) for rank in range(RANKS)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    sys.exit(max(abs(each.exitcode or 0) for each in ranks))


def train(rank: int, gradients: Barrier) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    with wattloop.Run(batch_size=128, max_epochs=40) as run:
        for epoch in run.epochs():
            for _ in range(0, 1024, run.batch_size):
                train_on(run.batch_size // RANKS, gpu=rank)
                gradients.wait(PEER_SECONDS)
                run.step(run.batch_size // RANKS)
            run.report(metric=1 - 0.85 ** ((epoch + 1) * (64 / run.batch_size) ** 0.4))


if __name__ == "__main__":
    main()
