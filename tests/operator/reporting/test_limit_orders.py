"""Orders of power limits for pods whose trainings report no GPUs, in the answers to their nodes' agents."""

from dataclasses import dataclass, field

import pytest

from support.backends.model_backend import START, job
from wattloop.errors import OperationError
from wattloop.wire.node_energy import PodLimit, PodLimitState
from wattloop.wire.training_messages import GpuEnergy, Report
from wattloop_operator.api.power_fields import Power
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reporting.interfaces import BearerToken, PodAttempt
from wattloop_operator.reporting.nodes import CACHE_SECONDS, LimitOrders
from wattloop_operator.reporting.service import ReportService

POD = "pod-uid"
ATTEMPT = PodAttempt("team", "digits-0", "digits", "job-uid", 0, 0)
ALLOWED = PodLimitState(POD, (200.0, 700.0))
FIXED, NONE = {"mode": "Fixed", "watts": 300}, {"mode": "None"}


@dataclass
class Attempts:
    """Stores one attempt, as the API server does, and has a clock; implements the stores of the services.

    Attributes:
        recurrence: The attempt; None: it is deleted.
        now: Monotonic seconds.
        reads: Number of reads.
        writes: Number of writes.
        problem: Why reads fail; empty if they do not.
    """

    recurrence: TrainingAttempt | None
    now: float = 0.0
    reads: int = 0
    writes: int = 0
    problem: str = ""

    def authorize(self, token: BearerToken, namespace: str, name: str, address: str = "") -> str:
        """Authorizes every caller."""
        return ""

    def read(self, namespace: str, name: str) -> TrainingAttempt | None:
        assert (namespace, name) == ("team", "digits-0")
        self.reads += 1
        if self.problem:
            raise OperationError(self.problem)
        return self.recurrence

    def write(self, recurrence: TrainingAttempt, progress: Progress) -> None:
        self.writes += 1
        version = recurrence.progress_version + 1
        self.recurrence = recurrence.model_copy(update={"progress": progress, "progress_version": version})

    @property
    def progress(self) -> Progress:
        assert self.recurrence is not None
        return self.recurrence.progress


def attempt(power: dict[str, object] | None = None) -> Attempts:
    return Attempts(decide(Snapshot(job(power=power or {})), Attempt(0, 0, "slot", START)))


@dataclass
class Operator:
    """The operator's services for reports of a training and of an agent."""

    attempts: Attempts
    sockets: bool = False
    asked_jobs: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reports = ReportService(
            self.attempts, self.attempts, clock=lambda: self.attempts.now, utc_now=lambda: START
        )
        self.orders = LimitOrders(self.reports, self._power_of, lambda: self.attempts.now, sockets=self.sockets)

    def _power_of(self, namespace: str, name: str) -> Power | None:
        self.asked_jobs.append((namespace, name))
        return None

    def order(self, state: PodLimitState | None = None) -> PodLimit | None:
        self.attempts.now += 5.0
        return self.orders.order(ATTEMPT, POD, state)


def test_a_decided_limit_is_ordered_and_its_state_is_stored() -> None:
    operator = Operator(attempt(FIXED))
    assert operator.order() == PodLimit(POD, 300.0)
    assert operator.order(PodLimitState(POD, (200.0, 700.0), 300.0, 1.0)) == PodLimit(POD, 300.0)
    assert operator.attempts.progress.power_limit_watts == 300
    assert operator.asked_jobs == []


def test_repeated_states_are_written_once() -> None:
    operator = Operator(attempt(FIXED))
    for seconds in range(20):
        operator.order(PodLimitState(POD, (200.0, 700.0), 300.0, 0.0 if seconds < 1 else 1.0))
    assert operator.attempts.writes == 1


def test_an_attempt_that_measures_limits_begins_with_the_allowed_range() -> None:
    operator = Operator(attempt())
    assert operator.order() == PodLimit(POD, None)
    assert operator.order(ALLOWED) == PodLimit(POD, 700.0)
    assert set(operator.asked_jobs) == {("team", "digits")}


def test_a_refusal_of_the_agent_is_shown_in_the_progress() -> None:
    operator = Operator(attempt(FIXED))
    operator.order(PodLimitState(POD, None, refusal="OutOfRange: GPUPowerPolicy rack allows 400 to 500 watts"))
    assert operator.attempts.progress.power_limit_refusal.startswith("OutOfRange: GPUPowerPolicy rack")


def test_an_attempt_without_a_limit_is_read_once_a_while() -> None:
    attempts = attempt(NONE)
    attempts.write(attempts.recurrence or pytest.fail("there is an attempt"), Progress(ranks=2))
    operator = Operator(attempts)
    for _ in range(int(CACHE_SECONDS / 5) - 1):
        assert operator.order() is None
    assert attempts.reads == 1


def test_where_pods_have_the_socket_a_report_without_gpus_is_awaited() -> None:
    operator = Operator(attempt(FIXED), sockets=True)
    assert operator.order() is None
    operator.reports.receive("team", "digits-0", Report(process="p", sequence=1, epoch=0))
    assert operator.order() == PodLimit(POD, 300.0)


def test_a_process_that_reports_its_gpus_requests_its_limit_itself() -> None:
    operator = Operator(attempt(FIXED), sockets=True)
    gpu = GpuEnergy("GPU-0", 0, 1000, 1.0, 2.0)
    operator.reports.receive("team", "digits-0", Report(process="p", sequence=1, epoch=0, gpus=(gpu,)))
    assert operator.order() is None


def test_an_attempt_that_cannot_be_read_gets_no_order_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    operator = Operator(attempt(FIXED))
    operator.attempts.problem = "the API server is away"
    assert operator.order() is None
    assert operator.order() is None
    assert caplog.text.count("no power limit can be ordered now: the API server is away") == 1
    operator.attempts.problem = ""
    assert operator.order() == PodLimit(POD, 300.0)


def test_a_deleted_attempt_gets_no_order() -> None:
    operator = Operator(attempt(FIXED))
    operator.attempts.recurrence = None
    assert operator.order(ALLOWED) is None
