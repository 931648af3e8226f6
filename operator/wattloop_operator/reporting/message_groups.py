"""Messages that wait to be committed together with others of their pipeline."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from wattloop_operator.memory_shares import WAITING_MESSAGES
from wattloop_operator.reporting.interfaces import TooManyRequestsError

Key = TypeVar("Key", bound=Hashable)
Message = TypeVar("Message")

# Bounds the memory of messages that wait for a slow database; one pipeline leaves half of it to the others.
MAX_WAITING = 16_384
MAX_WAITING_OF_PIPELINE = 8_192
# The longest message holds 7 MB.
MAX_WAITING_BYTES_OF_PIPELINE = WAITING_MESSAGES // 2
# After a group of a pipeline, its next one waits this many times as long as that one took. So groups grow when messages
# arrive faster than they are committed, and a job with a large profile leaves the others their time.
PAUSE_PER_SECOND = 2.0
MAX_PAUSE_SECONDS = 5.0


class MessageGroups(Generic[Key, Message]):
    """The waiting messages by pipeline, and when each group is due. Not thread-safe.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: dict[Key, list[Message]] = {}
        self._bytes: dict[Key, int] = {}
        self._number = 0
        self._due: dict[Key, float] = {}
        self._not_before: dict[Key, float] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting

    @property
    def first_due(self) -> float:
        """When the first group is due, by the clock; infinite if nothing waits."""
        return min(self._due.values(), default=math.inf)

    def add(self, key: Key, subject: str, message: Message, size_bytes: int, wait_seconds: float) -> None:
        """Let a message wait for others of its pipeline, and for the pipeline's pause.

        Args:
            key: The pipeline.
            subject: The pipeline's name, for the error.
            message: The message.
            size_bytes: What it holds in memory.
            wait_seconds: How long it waits for others at most.

        Raises:
            TooManyRequestsError: Too many messages wait.
        """
        of_pipeline = self._bytes.get(key, 0) + size_bytes
        if len(self._waiting.get(key, ())) >= MAX_WAITING_OF_PIPELINE or of_pipeline > MAX_WAITING_BYTES_OF_PIPELINE:
            raise TooManyRequestsError(subject, 1.0)
        if self._number >= MAX_WAITING or sum(self._bytes.values()) + size_bytes > WAITING_MESSAGES:
            raise TooManyRequestsError("all pipelines together", 1.0)
        self._waiting.setdefault(key, []).append(message)
        self._bytes[key] = of_pipeline
        self._number += 1
        due = max(self._clock() + wait_seconds, self._not_before.get(key, 0.0))
        self._due[key] = min(due, self._due.get(key, due))

    def take(self, *, everything: bool = False) -> dict[Key, list[Message]]:
        """Take the groups that are due, or all."""
        now = self._clock()
        self._not_before = {key: at for key, at in self._not_before.items() if at > now}
        due = [key for key, at in self._due.items() if at <= now or everything]
        taken = {key: self._waiting.pop(key) for key in due}
        self._number -= sum(map(len, taken.values()))
        for key in due:
            del self._due[key], self._bytes[key]
        return taken

    def pause(self, key: Key, seconds: float) -> None:
        """Let the next group of a pipeline wait after one that took so long."""
        self._not_before[key] = self._clock() + min(PAUSE_PER_SECOND * seconds, MAX_PAUSE_SECONDS)
