"""What an attempt was decided from, so that its decision can be made again.

The records of ended attempts are in the store, where they never change, so their number is enough. All else may change
after the decision, such as the job, or be deleted, and is kept with it.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from typing import Any, Self

from wattloop.errors import InputError
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.domain.records import PowerMeasurement, PowerProfileKey, PowerProfileRecord
from wattloop_operator.domain.training_attempt import TrainingAttempt

# Far above the largest job with 64 attempts in flight and 128 power profiles.
MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class SourceRecords:
    """The records of another job that a decision learned from.

    Attributes:
        job_uid: UID of that job.
        count: Their number.
        last: Recurrence and attempt of the last one.
    """

    job_uid: str
    count: int
    last: tuple[int, int]


@dataclass(frozen=True)
class StoredDecision:
    """A decision, and what it was made from besides the records of ended attempts.

    Attributes:
        decided: The attempt as it was decided.
        job: The job, of whose status only what decisions depend on.
        recurrences: The attempts in flight, and the earlier ones of the same recurrence; of their status only what
            decisions depend on.
        records: Number of the job's records.
        profiles: Its power profiles.
        source_job: The job that `spec.batchSize.learnFrom` names; None if it does not exist.
        source_records: What is known of its records; None without any.
        devices: See `Snapshot`.
        runtime_digest: See `Snapshot`.
        measures_limits_by_output: See `Snapshot`.
    """

    decided: TrainingAttempt
    job: RecurringTrainingJob
    recurrences: tuple[TrainingAttempt, ...]
    records: int
    profiles: tuple[PowerProfileRecord, ...]
    source_job: RecurringTrainingJob | None
    source_records: SourceRecords | None
    devices: int
    runtime_digest: str | None
    measures_limits_by_output: bool

    def to_bytes(self) -> bytes:
        """The inputs as compressed JSON."""
        body = {
            "decided": self.decided.to_wire(),
            "job": self.job.to_wire(),
            "recurrences": [each.to_wire() for each in self.recurrences],
            "records": self.records,
            "profiles": [asdict(each) for each in self.profiles],
            "source_job": None if self.source_job is None else self.source_job.to_wire(),
            "source_records": None if self.source_records is None else asdict(self.source_records),
            "devices": self.devices,
            "runtime_digest": self.runtime_digest,
            "measures_limits_by_output": self.measures_limits_by_output,
        }
        return zlib.compress(json.dumps(body, separators=(",", ":")).encode())

    @classmethod
    def from_bytes(cls, source: str, body: bytes) -> Self:
        """The inputs of compressed JSON.

        Args:
            source: Where they are, for the error's text.
            body: The compressed JSON.

        Raises:
            InputError: They are invalid, or of another version.
        """
        try:
            unpacked = zlib.decompressobj().decompress(body, MAX_BYTES)
            return cls._of(json.loads(unpacked))
        except (zlib.error, ValueError, TypeError, KeyError, AttributeError, RecursionError, InputError) as error:
            found = f"inputs of a decision that cannot be read ({type(error).__name__})"
            raise InputError(source, found, "those that this version of Wattloop writes") from error

    @classmethod
    def _of(cls, body: dict[str, Any]) -> Self:
        source_job, source_records = body["source_job"], body["source_records"]
        return cls(
            decided=TrainingAttempt.from_wire(body["decided"]),
            job=RecurringTrainingJob.from_wire(body["job"]),
            recurrences=tuple(map(TrainingAttempt.from_wire, body["recurrences"])),
            records=int(body["records"]),
            profiles=tuple(
                PowerProfileRecord(
                    PowerProfileKey(**each["key"]), tuple(PowerMeasurement(**point) for point in each["measurements"])
                )
                for each in body["profiles"]
            ),
            source_job=None if source_job is None else RecurringTrainingJob.from_wire(source_job),
            source_records=None
            if source_records is None
            else SourceRecords(source_records["job_uid"], source_records["count"], tuple(source_records["last"])),
            devices=body["devices"],
            runtime_digest=body["runtime_digest"],
            measures_limits_by_output=body["measures_limits_by_output"],
        )
