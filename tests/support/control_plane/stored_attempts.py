"""What the store of an operator has of attempts, whose objects have a summary of it."""

from support.control_plane.in_process_operator import TestClock
from support.control_plane.waiting import Object
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.reported_objects import ReportedObjects
from wattloop_operator.domain.progress import Progress
from wattloop_operator.reporting.progress_writer import StoredProgress
from wattloop_operator.store import Store


def cluster_progress(api: ClusterApi, store: Store, clock: TestClock) -> StoredProgress:
    """The progress of attempts as the reporting API of an operator reads and writes it."""
    return StoredProgress(ReportedObjects(api).recurrence, store.attempt_progress, clock)


def progress_of(store: Store, recurrence: Object) -> Progress:
    """What is stored of the reports about a TrainingRecurrence."""
    (attempt,) = store.attempt_progress.attempts([TrainingRecurrence.from_wire(recurrence)])
    return attempt.progress
