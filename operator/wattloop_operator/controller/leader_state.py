"""The leading controller as request threads see it.

The reporting API, health and metrics are served from threads of their own, before this operator
leads, too. They share this one object; acquiring the lead changes it in one assignment, so a thread
sees either no controller or all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.driver import Backend
from wattloop_operator.reconcile.attempt.early_stop import review_cost_limit

if TYPE_CHECKING:
    from wattloop_operator.controller.controller import Controller


class LeaderState:
    """The controller and the back end of an operator that leads; neither until it does. Thread-safe."""

    def __init__(self) -> None:
        self._leading: tuple[Controller, Backend] | None = None
        self._candidate_problem: Callable[[], str] = str

    def stand_for_election(self, problem: Callable[[], str]) -> None:
        """Record that this operator is a candidate.

        Args:
            problem: Returns why a candidate cannot reach the API server; empty if it can.
        """
        self._candidate_problem = problem

    def lead(self, controller: Controller, backend: Backend) -> None:
        """Record that this operator leads."""
        self._leading = controller, backend

    @property
    def controller(self) -> Controller | None:
        """The controller; None while this operator does not lead."""
        return None if self._leading is None else self._leading[0]

    def enqueue(self, key: JobKey) -> None:
        """Reconcile a job soon; without effect on a replica that does not lead."""
        controller = self.controller
        if controller is not None:
            controller.enqueue(key)

    def review(self, recurrence: TrainingAttempt, progress: Progress) -> Progress:
        """The progress with the policy's new bounds; unchanged on a replica that does not lead."""
        if self._leading is None:
            return progress
        _, backend = self._leading
        key = JobKey(recurrence.metadata.namespace, recurrence.spec.job_ref.name)
        return review_cost_limit(lambda: backend.snapshot(key), recurrence, progress)

    def problem(self) -> str:
        """Why the process must restart; empty if it need not."""
        controller = self.controller
        return "" if controller is None else controller.problem()

    def connection_problem(self) -> str:
        """Why this operator cannot use the API server now, although it need not restart; empty if it can.

        A leader cannot act then. No replica can review a token or store a report.
        """
        controller = self.controller
        return self._candidate_problem() if controller is None else controller.connection_problem()

    @property
    def queue_depth(self) -> int:
        """Number of jobs that wait for a worker."""
        controller = self.controller
        return 0 if controller is None else controller.queue_depth
