"""Runs a function in forked ranks of a gloo process group, and returns what it returned in each."""

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from support.free_ports import free_port


def run_ranks(count: int, train: Callable[[int], Any], folder: Path) -> list[Any]:
    """Call ``train(rank)`` in each rank.

    Args:
        train: What a rank does; its result can be saved by `torch.save`.

    Raises:
        RuntimeError: A rank failed; its traceback is on stderr.
    """
    port = free_port()
    children = [_fork(rank, count, port, train, folder) for rank in range(count)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        raise RuntimeError(f"the ranks ended with {codes}")
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(count)]


def _fork(rank: int, count: int, port: int, train: Callable[[int], Any], folder: Path) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        torch.set_num_threads(1)
        store = dist.TCPStore("127.0.0.1", port, count, is_master=rank == 0)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=count)
        torch.save(train(rank), folder / f"{rank}.pt")
        dist.barrier()
        dist.destroy_process_group()
        code = 0
    except BaseException:  # noqa: BLE001 - reported here, because a forked process must not return
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
