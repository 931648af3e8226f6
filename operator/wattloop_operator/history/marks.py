"""Marks on the time line of a job: where its recurrences begin to train something else, or somewhere else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from wattloop_operator.domain.quantities import target_text
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.history.job_history import JobHistory, once_per_history

# Enough to tell two images apart, as other tools show.
DIGEST_CHARACTERS = 12


class MarkKind(StrEnum):
    """What is different from a recurrence on."""

    TARGET = "target"
    TEMPLATE = "template"
    IMAGE = "image"
    GPU = "GPU"


@dataclass(frozen=True)
class Mark:
    """A change on the time line.

    Attributes:
        recurrence: Index of the first recurrence that differs from the ones before.
        kind: What is different.
        text: What it was and what it is, for a reader.
    """

    recurrence: int
    kind: MarkKind
    text: str


@once_per_history
def marks_of(history: JobHistory) -> tuple[Mark, ...]:
    """The marks of a job, by rising index. A value that is not known is no change."""
    latest: dict[MarkKind, str] = {}
    marks = []
    for record in history.records:
        for kind, value in _identity(record):
            if value and latest.get(kind, value) != value:
                marks.append(Mark(record.recurrence, kind, f"{latest[kind]} → {value}"))
            if value:
                latest[kind] = value
    return tuple(marks)


def _identity(record: ObservationRecord) -> Iterator[tuple[MarkKind, str]]:
    yield MarkKind.TARGET, target_text(record.target)
    yield MarkKind.TEMPLATE, (record.template_digest or "")[:DIGEST_CHARACTERS]
    yield MarkKind.IMAGE, (record.image_digest or "").partition(":")[2][:DIGEST_CHARACTERS]
    yield MarkKind.GPU, f"{record.gpu_count} × {record.gpu_product}" if record.gpu_product else ""
