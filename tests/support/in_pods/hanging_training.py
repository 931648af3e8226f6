"""A training of two ranks that hangs: rank 1 stops in its second epoch, and rank 0 waits for it ten epochs later."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import wattloop

RANKS = 2
HANGS_IN_EPOCH = {0: 11, 1: 1}
EPOCH_SECONDS = 2.0


def main() -> None:
    """Starts the ranks as torchrun does; each of them trains until it hangs."""
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]))
        return
    common = {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS)}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__], env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        )
        for rank in range(RANKS)
    ]
    for each in ranks:
        each.wait()


def train(rank: int) -> None:
    """Reports each epoch until it hangs."""
    with wattloop.Run(batch_size=64, max_epochs=40) as run:
        for epoch in run.epochs():
            if epoch == HANGS_IN_EPOCH[rank]:
                print(f"rank {rank} hangs", flush=True)
                threading.Event().wait()
            time.sleep(EPOCH_SECONDS)
            run.report(metric=0.1)


if __name__ == "__main__":
    main()
