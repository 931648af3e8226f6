"""Makes each decision of a job again, from what it was made from, and compares."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from wattloop_operator.api.training_recurrence import TrainingRecurrenceSpec
from wattloop_operator.domain.decision_inputs import StoredDecision
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import PolicyCache, Snapshot
from wattloop_operator.reconcile.job.retry import decided_again
from wattloop_operator.reconcile.learning.known_inputs import records_then, snapshot_of, source_records_then
from wattloop_planner.bandit.policy import NoFeasibleArmError


@dataclass(frozen=True)
class Difference:
    """A field of a decision that differs.

    Attributes:
        field: Its name in the spec of the TrainingRecurrence.
        decided: Its value then; None if it was absent.
        replayed: Its value now.
    """

    field: str
    decided: Any
    replayed: Any

    def __str__(self) -> str:
        return f"{self.field} {self.replayed!r} instead of {self.decided!r}"


@dataclass(frozen=True)
class ReplayedDecision:
    """A decision that was made again.

    Attributes:
        namespace: Namespace of the job.
        job: Its name.
        recurrence: Index of the recurrence.
        attempt: Index of the attempt within it.
        batch_size: The batch size that was decided.
        differences: What differs; empty if all is equal.
        unknown: Why it cannot be made again; empty if it can.
    """

    namespace: str
    job: str
    recurrence: int
    attempt: int
    batch_size: int
    differences: tuple[Difference, ...] = ()
    unknown: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether the decision was made again, and is the same."""
        return not self.differences and not self.unknown

    @property
    def verdict(self) -> str:
        """How it compares, as a phrase."""
        if self.unknown:
            return f"not known: {self.unknown}"
        return f"differs: {'; '.join(map(str, self.differences))}" if self.differences else "equal"

    def to_json(self) -> dict[str, Any]:
        """The decision as a JSON object."""
        return {**asdict(self), "equal": self.is_equal}


def replayed_decisions(
    decisions: Sequence[StoredDecision],
    records: Sequence[ObservationRecord],
    records_of: Callable[[str], Sequence[ObservationRecord]],
) -> Iterator[ReplayedDecision]:
    """Make the decisions of a job again.

    Args:
        decisions: They, in the order in which they were made.
        records: All records of the job, ordered by (recurrence, attempt).
        records_of: Those of the job with a UID, from which it learned.
    """
    policies = PolicyCache()
    later = {each.decided.order for each in decisions}
    for inputs in decisions:
        source = inputs.source_records
        known = records_then(inputs, records, later)
        of_source = source_records_then(inputs, () if source is None else records_of(source.job_uid))
        later.discard(inputs.decided.order)
        differences: tuple[Difference, ...] = ()
        unknown = ""
        if known is None:
            unknown = f"it was made from {inputs.records} observations, some of which were deleted since"
        elif of_source is None:
            unknown = (
                "the observations of spec.batchSize.learnFrom that it was made from cannot be told from later ones"
            )
        else:
            differences = tuple(_differences(inputs, snapshot_of(inputs, known, of_source, policies)))
        spec = inputs.decided.spec
        yield ReplayedDecision(
            inputs.decided.metadata.namespace,
            spec.job_ref.name,
            spec.index,
            spec.attempt,
            spec.batch_size,
            differences,
            unknown,
        )


def _differences(inputs: StoredDecision, snapshot: Snapshot) -> Iterator[Difference]:
    try:
        found = decided_again(snapshot, inputs.decided)
    except NoFeasibleArmError as error:
        yield Difference("batchSize", inputs.decided.spec.batch_size, f"none: {error}")
        return
    decided, replayed = _wire(inputs.decided.spec), _wire(found.spec)
    for field in sorted(decided.keys() | replayed.keys()):
        if decided.get(field) != replayed.get(field):
            yield Difference(field, decided.get(field), replayed.get(field))


def _wire(spec: TrainingRecurrenceSpec) -> dict[str, Any]:
    """The fields of a spec, with those of its decision by their paths."""
    wire = spec.to_wire()
    return {**wire, **{f"decision.{name}": value for name, value in wire.pop("decision").items()}}
