"""Reviews of running attempts cost the operator a bounded amount, whatever the trainings report."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from support.backends.model_backend import job
from support.backends.sample_reports import report
from wattloop.errors import OperationError
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.driver import StaleSnapshotError
from wattloop_operator.reconcile.attempt.early_stop import with_reviewed_limit
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reporting.interfaces import BearerToken
from wattloop_operator.reporting.service import RECURRENCE_RATE, TOTAL_RATE, CostReviews, ReportService

POWER = {"power": {"mode": "None"}}
DECIDED = decide(Snapshot(job(**POWER)), Attempt(0, 0, "slot", datetime(2026, 3, 1, tzinfo=UTC)))


@dataclass
class Operator:
    """An operator with one recurrence, a clock, and a policy whose limit is 1 MJ less 1 J for each review."""

    now: float = 100.0
    version: int = 1
    recurrence: TrainingAttempt = DECIDED
    reviews: list[tuple[str, Decimal | None]] = field(default_factory=list)
    failure: Exception | None = None
    meanwhile: Callable[[], None] = lambda: None

    def review(self, recurrence: TrainingAttempt, progress: Progress) -> Progress:
        if self.failure is not None:
            raise self.failure
        self.reviews.append((recurrence.metadata.name, progress.epoch))
        return with_reviewed_limit(progress, 1e6 - len(self.reviews))

    def authorize(self, token: BearerToken, namespace: str, name: str, address: str = "") -> str:
        """Authorizes every caller."""
        return ""

    def read(self, namespace: str, name: str) -> TrainingAttempt:
        return self.recurrence.model_copy(update={"progress_version": self.version})

    def write(self, recurrence: TrainingAttempt, progress: Progress) -> None:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        if recurrence.progress_version != self.version:
            raise StaleSnapshotError("changed")
        self.version += 1
        self.recurrence = self.recurrence.model_copy(update={"progress": progress})

    @property
    def progress(self) -> Progress:
        return self.recurrence.progress


@pytest.fixture
def operator() -> Operator:
    return Operator()


@pytest.fixture
def service(operator: Operator) -> ReportService:
    clock = lambda: operator.now  # noqa: E731
    return ReportService(operator, operator, operator.review, clock=clock, write_interval_seconds=1.0)


def send(service: ReportService, epoch: int, *, metric: float | None = 0.5) -> None:
    service.receive("team", "run", report(sequence=epoch, epoch=epoch, metric=metric))


def test_a_review_happens_with_each_evaluation_of_a_training_with_usual_epochs(
    operator: Operator, service: ReportService
) -> None:
    for epoch in range(1, 6):
        operator.now += 10.0
        send(service, epoch)
    assert [epoch for _, epoch in operator.reviews] == [1, 2, 3, 4, 5]
    assert (operator.progress.reviewed_epoch, operator.progress.stop_cost_joules) == (5, 999_995)


def test_a_training_that_evaluates_all_the_time_is_reviewed_once_a_second(
    operator: Operator, service: ReportService
) -> None:
    for epoch in range(1, 1001):
        operator.now += 0.02
        send(service, epoch)
    assert len(operator.reviews) <= RECURRENCE_RATE.burst + 20 * RECURRENCE_RATE.per_second
    # Reviews see what is written with them, not an older state of the reports that waited.
    ages = [later - earlier for (_, earlier), (_, later) in zip(operator.reviews, operator.reviews[1:], strict=False)]  # type: ignore[operator]
    assert min(ages[2:]) >= 40


def test_a_review_that_was_due_too_early_happens_with_a_later_report(
    operator: Operator, service: ReportService
) -> None:
    for epoch in (1, 2, 3, 4):
        send(service, epoch)
    assert len(operator.reviews) == RECURRENCE_RATE.burst
    operator.now += 1.0
    # Half an epoch later, without an evaluation.
    service.receive("team", "run", replace(report(sequence=5, epoch=4.5, metric=0.5), evaluations=4))
    assert operator.reviews[-1] == (DECIDED.metadata.name, Decimal("4.5"))
    assert operator.progress.reviewed_epoch == 4


def test_a_review_is_not_repeated_when_its_write_conflicts(operator: Operator, service: ReportService) -> None:
    def another_writer() -> None:
        operator.version += 1

    for epoch in range(1, 4):
        operator.now += 1.0
        operator.meanwhile = another_writer
        send(service, epoch)
    assert len(operator.reviews) == 3
    assert operator.progress.stop_cost_joules == 999_997


def test_a_failed_review_loses_no_report_and_is_made_again(
    operator: Operator, service: ReportService, caplog: pytest.LogCaptureFixture
) -> None:
    operator.failure = OperationError("the database is away")
    send(service, 1)
    operator.now += 1.0
    operator.failure = ValueError("a defect")
    send(service, 2)
    assert (operator.progress.epoch, operator.progress.reviewed_epoch) == (2, None)
    assert "the early stop cannot be decided now: the database is away" in caplog.text
    assert "unexpected failure of the policy's review" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.WARNING, logging.ERROR}
    operator.failure = None
    operator.now += 1.0
    send(service, 2)
    assert operator.progress.reviewed_epoch == 2


def test_an_outcome_ends_reviews(operator: Operator, service: ReportService) -> None:
    send(service, 1)
    status = operator.recurrence.status.model_copy(update={"result": "Reached"})
    operator.recurrence = operator.recurrence.model_copy(update={"status": status})
    operator.version += 1
    operator.now += 10.0
    send(service, 2)
    assert len(operator.reviews) == 1


def test_one_namespace_does_not_use_up_the_reviews_of_the_others(operator: Operator) -> None:
    reviews = CostReviews(operator.review, lambda: operator.now)

    def evaluate(namespace: str, index: int, epoch: int) -> None:
        name = f"{namespace}-{index}"
        metadata = DECIDED.metadata.model_copy(update={"namespace": namespace, "name": name})
        recurrence = DECIDED.model_copy(update={"metadata": metadata})
        reviews(recurrence, progress_after(recurrence, report(sequence=epoch, epoch=epoch, metric=0.5)))

    for second in range(1, 11):
        operator.now += 1.0
        for index in range(1000):
            evaluate("crowded", index, second)
        for index in range(3):
            evaluate("quiet", index, second)
    made = [name.split("-")[0] for name, _ in operator.reviews]
    assert len(made) <= TOTAL_RATE.burst + 10 * TOTAL_RATE.per_second
    assert made.count("quiet") == 30
