"""Where the page gets its jobs from."""

import abc
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from wattloop_operator.api.gpu_node import GPUNode
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.history.gpu_holders import GpuLine
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.job_overview import JobLine
from wattloop_operator.history.month_usage import MonthUsage


@dataclass(frozen=True)
class SourcedJob:
    """A job as its source knows it.

    Attributes:
        key: Its namespace and name.
        history: Its history.
        snapshot: Its state; None if the source has only observations.
        version: A text that changes with the history.
        note: What is shown instead of sentences about the history, because it is a part; empty if it is whole.
        missing: Why recurrences of it are not shown.
    """

    key: JobKey
    history: JobHistory
    snapshot: Snapshot | None
    version: str
    note: str = ""
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourcedGpus:
    """The GPUs of running attempts, and all GPUs of nodes as their agents report them.

    Attributes:
        held: Those of running attempts.
        held_unknown: Why they are not known, and where they are; empty if they are known.
        pods: The uids of the pods of running attempts, by namespace and name of the attempt.
        nodes: The nodes, by name. They are read each time, and are in no version.
        nodes_unknown: Why they are not known, and what shows them; empty if they are known.
        missing: Why some of the nodes are not shown.
    """

    held: tuple[GpuLine, ...]
    held_unknown: str = ""
    pods: Mapping[tuple[str, str], Collection[str]] = field(default_factory=dict)
    nodes: tuple[GPUNode, ...] = ()
    nodes_unknown: str = ""
    missing: tuple[str, ...] = ()


class JobSource(abc.ABC):
    """The jobs that one reader of the page may see. Every method may raise `WattloopError`.

    Attributes:
        name: What is read, without secrets.
        viewer: The user who has signed in; empty if the page has no authentication.
        first_step: The command that makes the first job.
    """

    name: str
    viewer = ""
    first_step: str

    @property
    def unreadable_rows(self) -> tuple[str, ...]:
        """What was found so far that cannot be read, and is left out of all that is shown."""
        return ()

    def refresh(self) -> None:  # noqa: B027  a source that is read at once has nothing to wait for
        """Wait until what is shown is new enough for a program, which does not read a page again by itself."""

    def outdated_seconds(self) -> float:
        """The age of what is shown, in seconds, while it is old and read again; else 0."""
        return 0.0

    @abc.abstractmethod
    def version(self) -> str:
        """A text that changes when anything of any job does."""

    def sees_any(self) -> bool:
        """Whether the reader may see a job that there is, or any that is made."""
        return True

    @abc.abstractmethod
    def keys(self) -> tuple[JobKey, ...]:
        """The jobs, by namespace and name."""

    @abc.abstractmethod
    def overviews(self, keys: Sequence[JobKey]) -> tuple[JobLine, ...]:
        """The overviews of these jobs, in their order; one that is gone meanwhile is left out.

        A job that cannot be read has an overview that says why.
        """

    @abc.abstractmethod
    def job(self, key: JobKey) -> SourcedJob | None:
        """A job; None if there is none of this name. It raises `InputError` if this one cannot be read."""

    def missing(self) -> tuple[str, ...]:
        """What is not shown of all that the viewer may see, and why."""
        return ()

    def no_jobs_reason(self) -> str:
        """Why the viewer sees no job, although others may see some, and what to do; empty if there is none at all."""
        return ""

    @abc.abstractmethod
    def gpus(self) -> SourcedGpus:
        """The GPUs."""

    @abc.abstractmethod
    def month(self, begin: datetime) -> tuple[MonthUsage, ...]:
        """What the jobs used in the month that begins then."""

    @abc.abstractmethod
    def month_partial(self) -> str:
        """Why the usage of months is a part, and where all of it is; empty if it is whole."""

    @abc.abstractmethod
    def latest_end(self) -> datetime | None:
        """When the attempt that ended last did so; None before the first."""

    @abc.abstractmethod
    def command(self, words: Sequence[str], key: JobKey | None = None) -> str:
        """The command line of a subcommand that reads the same; empty if there is none.

        Args:
            words: The subcommand and its options.
            key: The job that it reads; None for all.
        """

    @abc.abstractmethod
    def conditions_command(self, key: JobKey) -> str:
        """The command line that shows the conditions of a job."""
