"""Where the page gets its jobs from."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.job_overview import JobOverview


@dataclass(frozen=True)
class SourcedJob:
    """A job as its source knows it.

    Attributes:
        key: Its namespace and name.
        history: Its history.
        snapshot: Its state; None if the source has only observations.
        version: A text that changes with the history.
    """

    key: JobKey
    history: JobHistory
    snapshot: Snapshot | None
    version: str


class JobSource(Protocol):
    """The jobs that one reader of the page may see. Every method may raise `WattloopError`."""

    @property
    def name(self) -> str:
        """What is read, without secrets."""
        ...

    def version(self) -> str:
        """A text that changes when anything of any job does."""
        ...

    def keys(self) -> tuple[JobKey, ...]:
        """The jobs, by namespace and name."""
        ...

    def overviews(self, keys: Sequence[JobKey]) -> tuple[JobOverview, ...]:
        """The overviews of these jobs, in their order; one that is gone meanwhile is left out."""
        ...

    def job(self, key: JobKey) -> SourcedJob | None:
        """A job; None if there is none of this name."""
        ...

    def command(self, words: Sequence[str], key: JobKey | None = None) -> str:
        """The command line of a subcommand that reads the same.

        Args:
            words: The subcommand and its options.
            key: The job that it reads; None for all.
        """
        ...


def command_line(words: Sequence[str]) -> str:
    """The words as a line for a shell, on one line.

    Example:
        >>> command_line(["wattloop", "history", "two words"])
        "wattloop history 'two words'"
    """
    return shlex.join(words)
