"""The process group of PyTorch, where the training has initialised one. Imports nothing of PyTorch.

Ranks exchange short texts through the key-value store of the group, on any backend and for a bounded time.
"""

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger("wattloop")

FIRST_POLL_SECONDS = 0.001
MAX_POLL_SECONDS = 0.25
POLL_GROWTH = 1.5


@dataclass(frozen=True)
class TorchGroup:
    """The default process group."""

    rank: int
    size: int
    store: Any
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def publish(self, name: str, text: str) -> bool:
        """Set a value for all processes; returns whether that succeeded."""
        try:
            self.store.set(name, text)
        except Exception as error:  # noqa: BLE001 - its errors are those of any backend
            logger.warning("the store of the process group cannot be written: %s", error)
            return False
        return True

    def next_number(self, name: str) -> int:
        """How often this process has called this with a name, from 1: a number that all ranks count alike.

        Raises:
            LostStoreError: The process that keeps the store has ended.
        """
        try:
            return int(self.store.add(f"{name}/of/{self.rank}", 1))
        except Exception as error:
            raise LostStoreError(str(error)) from error

    def value(self, name: str) -> str | None:
        """A published value; None if there is none yet, or if the store is lost."""
        try:
            return str(self.store.get(name), "utf-8") if self.store.check([name]) else None
        except Exception as error:
            raise LostStoreError(str(error)) from error

    def awaited_value(self, name: str, timeout_seconds: float) -> str | None:
        """A published value, as soon as there is one; None after the timeout.

        Raises:
            LostStoreError: The process that keeps the store has ended.
        """
        deadline, pause = self.clock() + timeout_seconds, FIRST_POLL_SECONDS
        while (text := self.value(name)) is None:
            if self.clock() >= deadline:
                return None
            # A blocking wait of the store would keep the other threads of the process from it.
            self.sleep(pause)
            pause = min(POLL_GROWTH * pause, MAX_POLL_SECONDS)
        return text

    def confirm(self, name: str) -> None:
        """Tell rank 0 that this process has read a value."""
        try:
            self.store.add(name, 1)
        except Exception as error:  # noqa: BLE001 - rank 0 has ended without waiting
            logger.debug("rank 0 waits for no confirmation: %s", error)

    def await_confirmations(self, name: str, timeout_seconds: float) -> bool:
        """Wait until all other processes have read a value; returns whether they have within the timeout.

        The store often ends with the process of rank 0.
        """
        deadline, pause = self.clock() + timeout_seconds, FIRST_POLL_SECONDS
        try:
            while self.store.add(name, 0) < self.size - 1:
                if self.clock() >= deadline:
                    return False
                self.sleep(pause)
                pause = min(POLL_GROWTH * pause, MAX_POLL_SECONDS)
        except Exception as error:  # noqa: BLE001 - its errors are those of any backend
            logger.warning("the store of the process group cannot be read: %s", error)
            return False
        return True


class LostStoreError(Exception):
    """The store of the process group does not answer: the process that keeps it has ended."""


def torch_group() -> TorchGroup | None:
    """The default process group of PyTorch, if the training has initialised one of several processes."""
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return None
        rank, size = int(distributed.get_rank()), int(distributed.get_world_size())
        store = distributed.distributed_c10d._get_default_store()
    except Exception as error:  # noqa: BLE001 - a PyTorch without this store; the operator is asked instead
        logger.debug("the process group of PyTorch cannot be used: %s", error)
        return None
    return TorchGroup(rank, size, store) if size > 1 else None
