"""The interface of a kind of workload.

A kind is pure: it makes the spec of an attempt's workload from a template, and reads the phase of an object. Nothing
outside of this package knows a kind. `kinds.py` lists them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from wattloop_operator.api.template import Template
from wattloop_operator.domain.snapshot import WorkloadPhase
from wattloop_operator.workloads.injection import Injection
from wattloop_operator.workloads.ownership import GroupKind
from wattloop_operator.workloads.pod_state import Pod, PodFailure, PodWait

Spec = dict[str, Any]
NO_WAIT = PodWait()


@dataclass(frozen=True)
class ObservedPhase:
    """The phase of a workload, as its object and its pods have it.

    Attributes:
        phase: The phase.
        since: Since when, as far as the object says so.
        started_at: When the workload started, if its pods do not say so.
        message: What the object says of a failure or of an end.
        failure: Why the workload failed; None if it did not.
        wait: Why its pods do not run yet.
        suspended: Whether it is suspended, by its user or by a queue: it has no pods.
        may_run_again: Whether its controller may run it again although it has failed.
        backs_off: Whether its pods have ended and its controller waits before it creates others.
    """

    phase: WorkloadPhase
    since: datetime | None = None
    started_at: datetime | None = None
    message: str = ""
    failure: PodFailure | None = None
    wait: PodWait = NO_WAIT
    suspended: bool = False
    may_run_again: bool = False
    backs_off: bool = False


class RuntimeReference(NamedTuple):
    """A reference to a training runtime, of which a workload takes what its template does not have.

    Attributes:
        api_version: API version of its kind.
        kind: Its kind.
        name: Its name.
        namespaced: Whether it is in the namespace of the workload; otherwise it is the cluster's.
    """

    api_version: str
    kind: str
    name: str
    namespaced: bool


class WorkloadKind(Protocol):
    """What Wattloop knows of one kind of workload."""

    @property
    def between(self) -> frozenset[GroupKind]:
        """Kinds of the objects that may be between the workload and its training pods in the chain of controllers."""

    @property
    def patches(self) -> tuple[str, ...]:
        """Fields of the spec that carry additions, of which a cluster's version knows one; empty: pod templates do."""

    def spec(self, template: Template, injection: Injection) -> Spec:
        """The spec of an attempt's workload: the user's, with the additions, and without retries of its own.

        Raises:
            TemplateError: The template cannot be started.
        """

    def devices(self, template: Template, names: Sequence[str] | None) -> int:
        """Number of GPUs that the training containers of all its pods request.

        Args:
            template: The template.
            names: The job's `trainingContainers`.

        Raises:
            TemplateError: The template cannot be started.
        """

    def runtime(self, template: Template) -> RuntimeReference | None:
        """The training runtime that a template refers to; None if it has all that is trained."""

    def training_containers(self, template: Template, names: Sequence[str] | None) -> list[str]:
        """Names of the containers that train, in their order.

        Args:
            template: The template.
            names: The job's `trainingContainers`.
        """

    def pods(self, spec: Mapping[str, Any]) -> int:
        """How many pods a spec asks for at a time."""

    def observe(self, body: Mapping[str, Any], pods: Sequence[Pod]) -> ObservedPhase:
        """The phase of an object of this kind."""
