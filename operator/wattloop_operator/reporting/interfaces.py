"""Interfaces of the reporting API to its backends: authorization, storage of progress and energy."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from wattloop.wire.node_energy import GpuBounds, PodGpuUsage, PodLimit, PodLimitState
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.records import PodEnergy
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.report_effect import OutputReport

Review = Callable[[TrainingAttempt, Progress], Progress]
"""Has the policy review the cost limit of an attempt: returns the progress with the new limit, or the same
progress if there is no review."""

Observe = Callable[[str, str, OutputReport], None]
"""Merges a report of an attempt, given its namespace and name; see `ReportService.observe`."""


class UnknownCallerError(Exception):
    """The token is missing, expired, forged or for another audience: HTTP 401."""


class OwnershipError(Exception):
    """The caller is known, but reports about what is not its own: a recurrence, a node or a pod: HTTP 403."""


class UnknownRecurrenceError(Exception):
    """The recurrence does not exist: HTTP 404."""


class WrongSourceError(Exception):
    """The attempt receives no reports of this kind: HTTP 409."""


class TooManyRequestsError(Exception):
    """A rate limit is exceeded: HTTP 429 with Retry-After."""

    def __init__(self, subject: str, seconds: float) -> None:
        self.retry_after_seconds = max(1, math.ceil(seconds))
        super().__init__(f"too many requests of {subject}; send the next one in {self.retry_after_seconds} s")


class ProgressTooLargeError(Exception):
    """The progress of an attempt would be larger than what is stored of one: HTTP 413."""


@dataclass(frozen=True)
class BearerToken:
    """The bearer token of a request, hashed once.

    Limits and caches use the digest, so that they hold no token.

    Attributes:
        text: The token; empty where the request has none.
    """

    text: str = field(repr=False)
    digest: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", hashlib.sha256(self.text.encode()).digest())


class Authorizer(Protocol):
    """Checks who may report for a recurrence."""

    def authorize(self, token: BearerToken, namespace: str, name: str, address: str = "") -> str:
        """Check that the caller may report for a recurrence.

        `address`: the peer's address; only limits the rate of checks of unknown tokens.

        Returns:
            UID of the caller's pod; empty where there are no pods.

        Raises:
            UnknownCallerError: The token is invalid.
            OwnershipError: The caller does not run this recurrence.
            TooManyRequestsError: Too many unknown tokens were checked lately.
            OperationError: The check failed for now.
        """
        ...

    def is_authorized(self, token: BearerToken, namespace: str, name: str) -> bool:
        """Whether the caller is known to be authorized; never waits, so that an event loop may call it."""
        ...


class ProgressStore(Protocol):
    """Stores the progress of recurrences, durably when `write` returns."""

    def read(self, namespace: str, name: str) -> TrainingAttempt | None:
        """The recurrence as it is now, or None if it does not exist.

        Raises:
            OperationError: The read failed for now.
        """
        ...

    def write(self, recurrence: TrainingAttempt, progress: Progress) -> None:
        """Write the progress of a recurrence that has not changed since it was read.

        Raises:
            StaleSnapshotError: Its progress has changed, or its outcome is decided: read it and merge the report again.
            ProgressTooLargeError: The progress would be too large.
            OperationError: The write failed for now.
        """
        ...


@dataclass(frozen=True)
class PodAttempt:
    """The attempt that a pod runs.

    Attributes:
        name: Name of the TrainingRecurrence; empty if it is not known any more.
    """

    namespace: str
    name: str
    job: str
    job_uid: str
    recurrence: int
    attempt: int


AttemptsOfPods = Callable[[str, Sequence[PodGpuUsage]], dict[str, PodAttempt]]
"""The attempts that the pods of usages on a node run, by uid; a pod that runs none or is deleted has none. It raises
OwnershipError if a pod is on another node, TooManyRequestsError if too many unknown ones are of this node, and
OperationError if the check failed for now."""

AttemptEnergies = Callable[[str, int, int], tuple[PodEnergy, ...]]
"""The agents' latest reports about the pods of an attempt, by job uid, recurrence and attempt. It raises OperationError
if they cannot be read now."""

OrderLimit = Callable[[PodAttempt, str, PodLimitState | None], PodLimit | None]
"""The power limit that the agent is to hold for a pod of an attempt, by its uid and what the agent did about the order
before (None: there was none); None: the pod's processes request limits themselves, or none is decided."""

AuthorizeNode = Callable[[BearerToken, str, str], None]
"""Checks that the caller is the agent of a node, given its token, the node and the peer's address. It raises
UnknownCallerError, OwnershipError, TooManyRequestsError, or OperationError if the check failed for now."""

BoundsOfNode = Callable[[str], tuple[GpuBounds, ...] | None]
"""The bounds of the GPUPowerPolicies that apply to a node; None if they are not known now."""
