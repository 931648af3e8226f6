"""Reports what the pipelines of a local run's attempts planned and realised."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineKey
from wattloop_operator.reconcile.pipeline.pipeline_summary import pipeline_summary
from wattloop_operator.store.pipeline_store import Pipelines


class PipelineReporter:
    """Prints a line for each attempt that ends and had a pipeline.

    Args:
        pipelines: The stored pipelines.
        print_line: Prints one line.
    """

    def __init__(self, pipelines: Pipelines, print_line: Callable[[str], None]) -> None:
        self._pipelines = pipelines
        self._print_line = print_line
        self._known: set[PipelineKey] | None = None

    def show(self, snapshot: Snapshot) -> None:
        """Print the lines of the attempts that have ended since the last call. The first call prints none.

        Raises:
            OperationError: The database failed.
        """
        uid = snapshot.job.metadata.uid
        ended = {
            PipelineKey(uid, each.spec.index, each.spec.attempt)
            for each in snapshot.recurrences
            if each.status.result is not None
        }
        for key in sorted(
            ended - (ended if self._known is None else self._known), key=attrgetter("recurrence", "attempt")
        ):
            state = self._pipelines.read_without_measurements(key)
            if state is not None:
                self._print_line(f"run {key.recurrence}, try {key.attempt}: {pipeline_summary(state)}")
        self._known = (self._known or set()) | ended
