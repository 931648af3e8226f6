"""Followers of the log of one attempt, in virtual time."""

from collections.abc import Callable, Iterator

from support.backends.model_backend import KEY, ModelBackend, job
from wattloop.errors import OperationError
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.pod_logs import ContainerLog, LogFollower
from wattloop_operator.domain.bounded_output import BoundedOutputReader
from wattloop_operator.reconcile.attempt.report_effect import OutputReport
from wattloop_operator.reconcile.learning.decision import sample_decision

LOG = ContainerLog("team", "digits-0-abcde", "train", "uid/0")


def recurrence() -> TrainingRecurrence:
    snapshot = ModelBackend(job(reporting={"source": "Logs"})).snapshot(KEY)
    decided = sample_decision(snapshot, snapshot.job.metadata.creation_timestamp)  # type: ignore[arg-type]
    assert decided is not None
    return decided


class VirtualFlow:
    """Time that only waits advance."""

    def __init__(self, stop_after: float = float("inf")) -> None:
        self.now = 0.0
        self._stop_after = stop_after

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.now > self._stop_after

    def monotonic(self) -> float:
        return self.now


def follower(
    chunks: Callable[[int], Iterator[bytes]],
    observed: list[OutputReport],
    position: int = 0,
    flow: VirtualFlow | None = None,
    observe: Callable[[OutputReport], None] | None = None,
    follow: bool = True,
    before: LogFollower | None = None,
    has_counted: bool = False,
    counts_from_0: bool = False,
    **ended: bool,
) -> LogFollower:
    attempt, own = recurrence(), flow or VirtualFlow()
    spec = attempt.spec
    reader = BoundedOutputReader(
        spec.reporting, spec.target, own.monotonic, max_epochs=50, has_counted=has_counted, counts_from_0=counts_from_0
    )
    return LogFollower(
        attempt,
        LOG,
        reader if before is None else before.reader,
        position=position if before is None else before.position,
        read_until=0 if before is None else before.read_until,
        follows=follow,
        **ended,
        open_log=lambda _, since, __: chunks(since),
        observe=lambda _, __, seen: (observe or observed.append)(seen),
        monotonic=own.monotonic,
        wait=own.wait,
    )


def interrupted(*chunks: bytes) -> Iterator[bytes]:
    yield from chunks
    raise OperationError("the connection was reset")
