"""Writes the OpenAPI description of the reporting API.

`python -m wattloop_operator.reporting.openapi [--check]`
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

from wattloop.node_energy import PodGpuUsage
from wattloop_operator.api import generated
from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.records import PodEnergy
from wattloop_operator.reconcile.pipeline.state import PipelineState
from wattloop_operator.reporting.app import create_app
from wattloop_operator.reporting.interfaces import BearerToken, PodAttempt
from wattloop_operator.reporting.nodes import NodeService
from wattloop_operator.reporting.pipeline_commits import PipelineCommits
from wattloop_operator.reporting.pipelines import PipelineService
from wattloop_operator.reporting.plan_worker import planned_in_process
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store.pipelines import Change, StoredPipeline

FILE = "reporting-api.json"


class _Unused:
    """Implements the interfaces for the description of the API, which calls none of them."""

    def is_authorized(self, token: BearerToken, namespace: str, name: str) -> bool:
        """See `CachingAuthorizer`."""
        raise NotImplementedError

    def authorize(self, token: BearerToken, namespace: str, name: str, address: str = "") -> str:
        """See `Authorizer`."""
        raise NotImplementedError

    def read(self, namespace: str, name: str) -> TrainingRecurrence | None:
        """See `ProgressStore`."""
        raise NotImplementedError

    def write(self, recurrence: TrainingRecurrence, progress: Progress) -> None:
        """See `ProgressStore`."""
        raise NotImplementedError

    def attempt_of(self, node: str, usage: PodGpuUsage) -> PodAttempt | None:
        """See `NodePods`."""
        raise NotImplementedError

    def record(self, energies: Iterable[PodEnergy]) -> None:
        """See `EnergyStore`."""
        raise NotImplementedError

    def delete_before(self, moment: datetime) -> int:
        """See `EnergyStore`."""
        raise NotImplementedError

    def delete_surplus(self) -> int:
        """See `EnergyStore`."""
        raise NotImplementedError

    def attempts_of(self, node: str, ledger: str, pod_uids: Collection[str]) -> dict[str, tuple[str, int, int]]:
        """See `EnergyStore`."""
        raise NotImplementedError


class _UnusedPipelines:
    """Implements `PipelineStore`."""

    def change(
        self, new: PipelineState, known: StoredPipeline | None, merge: Change, decide: Change, now: datetime
    ) -> StoredPipeline:
        """See `PipelineStore`."""
        raise NotImplementedError

    def delete_old(self, now: datetime) -> int:
        """See `PipelineStore`."""
        raise NotImplementedError

    def claim_planning(self, profile_id: int, planner: str, now: datetime, until: datetime) -> datetime | None:
        """See `Claims`."""
        raise NotImplementedError

    def release_planning(self, profile_id: int, planner: str) -> None:
        """See `Claims`."""
        raise NotImplementedError


class _UnusedNodeAuthorizer:
    """Implements `NodeAuthorizer`, whose method has the name of `Authorizer`'s."""

    def authorize(self, token: BearerToken, node: str, address: str = "") -> None:
        """See `NodeAuthorizer`."""
        raise NotImplementedError


def rendered() -> dict[str, str]:
    """The text of each generated file, by file name."""
    unused = _Unused()
    nodes = NodeService(_UnusedNodeAuthorizer(), unused, unused, lambda: datetime.now(UTC))
    reports = ReportService(unused, unused)
    # Nothing is committed, because the thread of the commits does not start.
    commits = PipelineCommits(_UnusedPipelines(), planned_in_process, lambda: datetime.now(UTC))
    pipelines = PipelineService(unused, unused, commits, reports.limits)
    document = create_app(reports, nodes, pipelines).openapi()
    return {FILE: json.dumps(document, indent=2, ensure_ascii=False) + "\n"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file, or with --check only compare it; returns the exit code."""
    return generated.main(
        arguments,
        description="Generates the OpenAPI description of the reporting API.",
        folder="docs",
        pattern=FILE,
        files=rendered(),
    )


if __name__ == "__main__":
    sys.exit(main())
