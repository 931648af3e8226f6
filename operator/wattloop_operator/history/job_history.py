"""The history of one job: its records and profiles, the settings to evaluate them with, and its marks.

A mark is where recurrences begin to train something else, or somewhere else.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from statistics import fmean
from typing import Any, Self, TypeVar

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.recurring_training_job import Mode, RecurringTrainingJob
from wattloop_operator.domain.quantities import Units, target_text
from wattloop_operator.domain.records import ObservationRecord, PowerProfileRecord
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.tariff import NO_TARIFF, Tariff
from wattloop_operator.history.energy_origin import ANNOTATION
from wattloop_operator.reconcile.job.policy_status import ADVICE_CHECKED
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.advice import advice_text
from wattloop_operator.reconcile.learning.costs import Measure, comparable_default
from wattloop_operator.reconcile.learning.job_observations import default_values
from wattloop_operator.reconcile.learning.job_savings import JobSavings, job_savings
from wattloop_planner.bandit.configuration import Configuration

Value = TypeVar("Value")
# Enough to tell two images apart, as other tools show.
DIGEST_CHARACTERS = 12


@dataclass(frozen=True)
class JobHistory:
    """The history of one job.

    Attributes:
        namespace: The job's namespace.
        job_name: Its name.
        eta: Weight of energy in the cost, 0 to 1; None if not known.
        default_batch_size: The batch size to compare with; None if not known.
        records: Every attempt that ended, ordered by (recurrence, attempt).
        profiles: Its power profiles.
        advice: The advice for the next recurrence; empty unless the job is in mode Advise.
        advice_check: What the last advice expected and what was measured since, as a sentence; empty if nothing.
        default_parameters: Default of each further parameter to compare with.
        tariff: Price and carbon intensity of energy.
        energy_origin: Where its energies come from, an `EnergyOrigin`; None if it is not known.
        derived: Values that are computed from the history once; see `once_per_history`.
    """

    namespace: str
    job_name: str
    eta: float | None
    default_batch_size: int | None
    records: tuple[ObservationRecord, ...]
    profiles: tuple[PowerProfileRecord, ...] = ()
    advice: str = ""
    advice_check: str = ""
    default_parameters: Mapping[str, str] = field(default_factory=dict)
    tariff: Tariff = NO_TARIFF
    energy_origin: str | None = None
    derived: dict[Callable[["JobHistory"], Any], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def of_snapshot(cls, snapshot: Snapshot) -> Self:
        """The history in a snapshot: the records of the store and of the objects."""
        records, profiles = job_observations.known_records(snapshot), job_observations.known_profiles(snapshot)
        return cls.of_job(snapshot.job, records, profiles, snapshot.tariff)

    @classmethod
    def of_job(
        cls,
        job: RecurringTrainingJob,
        records: tuple[ObservationRecord, ...],
        profiles: tuple[PowerProfileRecord, ...],
        tariff: Tariff,
    ) -> Self:
        """The history of a job, evaluated with its own settings."""
        spec = job.spec
        return cls(
            namespace=job.metadata.namespace,
            job_name=job.metadata.name,
            eta=spec.objective.energy_weight_percent / 100,
            default_batch_size=spec.batch_size.default,
            default_parameters=default_values(spec),
            records=records,
            profiles=profiles,
            advice=_advice(job),
            tariff=tariff,
            energy_origin=job.metadata.annotations.get(ANNOTATION),
            advice_check=_advice_check(job),
        )

    @property
    def title(self) -> str:
        """Namespace and name of the job, for plots and messages."""
        return f"{self.namespace}/{self.job_name}"

    @property
    def comparable_records(self) -> tuple[ObservationRecord, ...]:
        """The records with the target of the latest attempt; costs for other targets are not comparable."""
        return tuple(record for record in self.records if record.target == self.records[-1].target)

    def expected_epochs(self, configuration: Configuration) -> float | None:
        """Mean epochs to the latest target with a configuration; None if it has not reached it yet."""
        reached = [
            record.epochs
            for record in self.comparable_records
            if record.result == Result.REACHED.value
            and Configuration(record.batch_size, record.parameters) == configuration
        ]
        return fmean(reached) if reached else None

    @cached_property
    def units(self) -> Units:
        """The units of all energies and times of the job: those of its largest attempts."""
        return Units.of(
            [record.energy_joules for record in self.records], [record.time_seconds for record in self.records]
        )

    @cached_property
    def savings(self) -> JobSavings:
        """The recurrences with the target of the latest attempt, compared with the default configuration by cost."""
        return self._savings(Measure.COST)

    @cached_property
    def energy_savings(self) -> JobSavings:
        """The same recurrences, compared by energy in joules."""
        return self._savings(Measure.ENERGY)

    @cached_property
    def time_savings(self) -> JobSavings:
        """The same recurrences, compared by time in seconds."""
        return self._savings(Measure.TIME)

    def _savings(self, measure: Measure) -> JobSavings:
        if self.eta is None or self.default_batch_size is None or not self.records:
            return JobSavings(None)
        configuration = Configuration(self.default_batch_size, tuple(self.default_parameters.items()))
        default = comparable_default(
            self.comparable_records, self.profiles, configuration, eta=self.eta, measure=measure
        )
        return job_savings(
            self.records,
            self.profiles,
            target=self.records[-1].target,
            configuration=configuration,
            eta=self.eta,
            default=default,
            measure=measure,
        )


def once_per_history(function: Callable[[JobHistory], Value]) -> Callable[[JobHistory], Value]:
    """A decorator of a pure function of a history, which keeps its value in the history."""

    @functools.wraps(function)
    def derive(history: JobHistory) -> Value:
        if function not in history.derived:
            history.derived[function] = function(history)
        value: Value = history.derived[function]
        return value

    return derive


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


def _advice(job: RecurringTrainingJob) -> str:
    """The advice in a job's status as a phrase; empty unless the job is in mode Advise."""
    found = job.status.next if job.spec.mode is Mode.ADVISE else None
    return "" if found is None or found.batch_size is None else advice_text(found)


def _advice_check(job: RecurringTrainingJob) -> str:
    """What the last advice expected and what was measured since, as a sentence; empty if mode Advise never ended."""
    return next((each.message for each in job.status.conditions if each.type == ADVICE_CHECKED), "")
