"""What the reporting API needs from where it runs: who a token is, and where progress is kept."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from wattloop.node_energy import GpuBounds, PodGpuUsage
from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.records import PodEnergy

Review = Callable[[TrainingRecurrence, Progress], Progress]
"""The policy's second thought: the progress with a new bound, or as it was where the job's state is not at hand."""


class UnknownCallerError(Exception):
    """The token is missing, expired, forged or for another audience: answered with 401."""


class RecurrenceOwnershipError(Exception):
    """The caller is known, but the recurrence is not its own: answered with 403."""


class UnknownRecurrenceError(Exception):
    """There is no such recurrence: answered with 404."""


class NodeOwnershipError(Exception):
    """The caller is known, but may not speak of this node: answered with 403."""


class PodOwnershipError(Exception):
    """An agent speaks of a pod that is on another node: answered with 403."""


class TooManyRequestsError(Exception):
    """A limit of requests is reached: answered with 429 and Retry-After.

    Args:
        subject: What has sent too many.
        seconds: After what time one more is accepted.
    """

    def __init__(self, subject: str, seconds: float) -> None:
        self.retry_after_seconds = max(1, math.ceil(seconds))
        super().__init__(f"too many requests of {subject}; send the next one in {self.retry_after_seconds} s")


class ProgressTooLargeError(Exception):
    """The progress of an attempt would leave too little room for its outcome: answered with 413."""


@dataclass(frozen=True)
class BearerToken:
    """The bearer token of a request, hashed once: limits and caches use the digest, so that memory holds no token.

    Attributes:
        text: The token; empty where the request has none.
        digest: SHA-256 of the token.
    """

    text: str = field(repr=False)
    digest: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", hashlib.sha256(self.text.encode()).digest())


class Authorizer(Protocol):
    """Knows who may speak of which recurrence."""

    def authorize(self, token: BearerToken, namespace: str, name: str, address: str = "") -> None:
        """Let a caller pass.

        Args:
            token: The caller's token.
            namespace: Namespace of the recurrence.
            name: Its name.
            address: The peer's address; it limits checks of unknown tokens and proves nothing.

        Raises:
            UnknownCallerError: The token says nothing that can be trusted.
            RecurrenceOwnershipError: The caller does not run this recurrence.
            TooManyRequestsError: Too many unknown tokens were checked a moment ago.
            OperationError: It could not be found out now.
        """
        ...


class ProgressStore(Protocol):
    """Keeps the progress of recurrences, durably when `write` returns."""

    def read(self, namespace: str, name: str) -> TrainingRecurrence | None:
        """The recurrence as it is now; None where there is none.

        Raises:
            OperationError: It could not be read now.
        """
        ...

    def write(self, recurrence: TrainingRecurrence, progress: Progress) -> None:
        """Write the progress of a recurrence that is still as it was read.

        Raises:
            StaleSnapshotError: It has changed since: read it again, take the report in again.
            ProgressTooLargeError: It has more bytes than an object can hold beside its outcome.
            OperationError: It could not be written now.
        """
        ...


class NodeAuthorizer(Protocol):
    """Knows who may speak of which node."""

    def authorize(self, token: BearerToken, node: str, address: str = "") -> None:
        """Let an agent pass.

        Args:
            token: The caller's token.
            node: Name of the node.
            address: The peer's address; it limits checks of unknown tokens and proves nothing.

        Raises:
            UnknownCallerError: The token says nothing that can be trusted.
            NodeOwnershipError: The caller is no agent, or one of another node.
            TooManyRequestsError: Too many unknown tokens were checked a moment ago.
            OperationError: It could not be found out now.
        """
        ...


@dataclass(frozen=True)
class PodAttempt:
    """The attempt that a pod runs.

    Attributes:
        namespace: Namespace of the job.
        job: Name of the RecurringTrainingJob.
        job_uid: Its uid.
        recurrence: Index of the recurrence.
        attempt: Index of the attempt within it.
    """

    namespace: str
    job: str
    job_uid: str
    recurrence: int
    attempt: int


class NodePods(Protocol):
    """Knows what the pods of nodes run."""

    def attempt_of(self, node: str, usage: PodGpuUsage) -> PodAttempt | None:
        """The attempt that the usage's pod runs; None where it is none of ours, or gone.

        Raises:
            PodOwnershipError: The pod is there, but on another node.
            OperationError: It could not be found out now.
        """
        ...


class EnergyStore(Protocol):
    """Keeps what pods used, durably when `record` returns."""

    def record(self, energies: Iterable[PodEnergy]) -> None:
        """Keep energies; of one key the highest stands.

        Raises:
            OperationError: They could not be kept now.
        """
        ...

    def forget_before(self, moment: datetime) -> int:
        """Delete those that nothing was heard of since then; returns how many.

        Raises:
            OperationError: They could not be deleted now.
        """
        ...

    def attempts_of(self, node: str, ledger: str, pod_uids: Collection[str]) -> dict[str, tuple[str, int, int]]:
        """Of these pods, those told of before by this ledger: job uid, recurrence and attempt of each.

        Raises:
            OperationError: It could not be read now.
        """
        ...


BoundsOfNode = Callable[[str], tuple[GpuBounds, ...] | None]
"""The guard rails that hold on a node; None: they are not known now."""
