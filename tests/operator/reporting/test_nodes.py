"""Reports of node agents over HTTP: the energy of training pods is stored once."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.backends.model_backend import job
from support.backends.sample_reports import START
from support.reporting.node_api import AGENTS, GPU, NODE, NOW, USAGE, NodeApi, report, running_node_api, token_of
from wattloop.errors import OperationError
from wattloop.wire.node_energy import MAX_NODE_REPORT_BYTES, GpuBounds, NodeAnswer, NodeReport, PodLimit, PodLimitState
from wattloop.wire.training_messages import GpuEnergy, Report
from wattloop_operator.api.power_fields import Power
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reporting.interfaces import BearerToken, PodAttempt
from wattloop_operator.reporting.nodes import CACHE_SECONDS, MAX_AGE_SECONDS, LimitOrders
from wattloop_operator.reporting.service import ReportService

ENDED = replace(USAGE, ended=True)
BOUNDS = (GpuBounds("rack", None, ("team",), (100.0, 300.0)),)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[NodeApi]:
    with running_node_api(tmp_path, bounds=BOUNDS) as running:
        yield running


def test_the_energy_of_a_training_pod_is_stored_for_its_attempt(api: NodeApi) -> None:
    code, answer = api.post(report(USAGE))
    assert (code, NodeAnswer.from_json(answer)) == (200, NodeAnswer((), BOUNDS))
    ((stored,),) = api.store.pod_energies.of_job("job-uid", 0).values()
    assert (stored.node, stored.pod, stored.gpu_product) == (NODE, "digits-0-abc", "NVIDIA H200")
    assert (stored.energy_millijoules, stored.uncertainty_millijoules, stored.reported_at) == (5_000, 10, NOW)


@pytest.mark.parametrize(("clock", "age"), [(6.0, 0.0), (8.0, 2.0), (5.0, 0.0), (9_000.0, MAX_AGE_SECONDS)], ids=str)
def test_the_age_of_a_reading_is_the_difference_of_the_clocks_within_bounds(
    api: NodeApi, clock: float, age: float
) -> None:
    gpu = replace(GPU, time_seconds=clock, max_power_limit_watts=700.0)
    api.post(NodeReport(NODE, "ledger", 1, (gpu,), (USAGE,)).to_json())
    ((stored,),) = api.store.pod_energies.of_job("job-uid", 0).values()
    assert stored.measured_at == NOW - timedelta(seconds=age)
    assert stored.max_power_limit_watts == 700.0


@dataclass
class RecordedOrders:
    """Orders 250 W for the pods of every attempt.

    Attributes:
        asked: The arguments of each call.
    """

    asked: list[tuple[PodAttempt, str, PodLimitState | None]] = field(default_factory=list)

    def order(self, attempt: PodAttempt, pod_uid: str, state: PodLimitState | None) -> PodLimit | None:
        self.asked.append((attempt, pod_uid, state))
        return PodLimit(pod_uid, 250.0)


def test_limits_are_ordered_for_pods_that_train_and_have_their_gpu(tmp_path: Path) -> None:
    orders, state = RecordedOrders(), PodLimitState("uid-1", (100.0, 400.0), 250.0, 3.0)
    with running_node_api(tmp_path, order_limit=orders.order) as api:
        web = replace(USAGE, pod="web", pod_uid="uid-web")
        body = NodeReport(NODE, "ledger", 1, (GPU,), (USAGE, web), (state, replace(state, pod_uid="uid-web"))).to_json()
        assert api.post(body)[1]["limits"] == [{"pod_uid": "uid-1", "watts": 250.0}]
        attempt = PodAttempt("team", "digits-0", "digits", "job-uid", 0, 0)
        assert orders.asked == [(attempt, "uid-1", state)]
        assert api.post(report(ENDED))[1]["limits"] == []
    assert len(orders.asked) == 1


def test_a_gpu_of_unknown_limits_has_no_maximum(api: NodeApi) -> None:
    api.post(report(USAGE))
    ((stored,),) = api.store.pod_energies.of_job("job-uid", 0).values()
    assert stored.max_power_limit_watts is None


def test_unknown_bounds_differ_from_no_bounds(tmp_path: Path) -> None:
    with running_node_api(tmp_path) as api:
        assert api.post(report())[1] == {"acknowledged": [], "bounds": None, "limits": []}


def test_lost_repeated_and_late_reports_give_the_same_energy(api: NodeApi) -> None:
    reports = [
        report(
            replace(USAGE, energy_millijoules=1000 * second, time_seconds=1.0 + second, ended=second == 9),
            sequence=second,
        )
        for second in range(10)
    ]
    chosen = random.Random(7)
    sent = [*chosen.choices(reports[:9], k=8), reports[9], reports[9], *chosen.choices(reports, k=4)]
    assert {api.post(body)[0] for body in sent} == {200}
    assert api.stored() == {"uid-1": 9_000}


def test_energies_of_two_ledgers_of_a_node_add_up(api: NodeApi) -> None:
    api.post(report(USAGE))
    api.post(report(replace(USAGE, energy_millijoules=300), ledger="another"))
    assert api.stored() == {"uid-1": 5_300}


def test_ended_usages_are_acknowledged_once_stored_and_their_job_is_reconciled(api: NodeApi) -> None:
    assert api.post(report(USAGE))[1]["acknowledged"] == []
    assert api.asked == []
    assert api.post(report(ENDED))[1]["acknowledged"] == ["uid-1"]
    assert api.asked == [JobKey("team", "digits")]


def test_a_pod_with_an_active_container_is_not_acknowledged(api: NodeApi) -> None:
    assert api.post(report(ENDED, replace(USAGE, container="other")))[1]["acknowledged"] == []


def test_usages_of_other_pods_are_acknowledged_and_not_stored(api: NodeApi) -> None:
    web = replace(ENDED, pod="web", pod_uid="uid-web")
    gone = replace(ENDED, pod="gone", pod_uid="uid-gone")
    namesake = replace(ENDED, pod_uid="uid-before", gpu="GPU-1")
    assert api.post(report(web, gone, namesake))[1]["acknowledged"] == ["uid-web", "uid-gone", "uid-before"]
    assert api.stored() == {}
    assert api.asked == []


def test_a_pod_with_a_forged_label_is_not_stored(api: NodeApi) -> None:
    api.server.objects["pods/digits-0-abc"]["metadata"]["ownerReferences"] = []
    assert api.post(report(USAGE))[0] == 200
    assert api.stored() == {}


def test_a_pod_whose_workload_is_not_recorded_yet_is_looked_up_again(api: NodeApi) -> None:
    status = api.server.objects["trainingrecurrences/digits-0"].pop("status")
    api.server.objects["pods/digits-0-abc"]["metadata"]["ownerReferences"][0]["kind"] = "PyTorchJob"
    api.post(report(USAGE))
    assert api.stored() == {}
    api.server.objects["trainingrecurrences/digits-0"]["status"] = status
    api.post(report(USAGE))
    assert api.stored() == {"uid-1": 5_000}


def test_the_final_energy_of_a_deleted_pod_is_stored(api: NodeApi, tmp_path: Path) -> None:
    api.post(report(USAGE))
    with running_node_api(tmp_path) as restarted:
        del restarted.server.objects["pods/digits-0-abc"]
        last = replace(ENDED, energy_millijoules=6_000, time_seconds=7.0)
        assert restarted.post(report(last))[1]["acknowledged"] == ["uid-1"]
        assert restarted.stored() == {"uid-1": 6_000}


def test_a_pod_is_looked_up_once(api: NodeApi) -> None:
    for _ in range(3):
        api.post(report(USAGE, replace(USAGE, gpu="GPU-1")))
    assert api.server.asked["pods/digits-0-abc"] == 1
    assert api.server.asked["tokenreviews"] == 1


UNAUTHORIZED_CALLERS: dict[str, tuple[dict[str, Any] | None, int, str]] = {
    "no token of the cluster": (None, 401, "the token is not one of this cluster"),
    "a user": (token_of("alice", node=NODE), 401, "the token belongs to no pod"),
    "a training pod of the node": (
        token_of("system:serviceaccount:team:default", node=NODE),
        403,
        f"team/default is not the agents' service account, {AGENTS}",
    ),
    "the same name in another namespace": (
        token_of("system:serviceaccount:team:wattloop-agent", node=NODE),
        403,
        "team/wattloop-agent is not the agents' service account",
    ),
    "another node's agent": (
        token_of("system:serviceaccount:wattloop-agent:wattloop-agent", node="node-2"),
        403,
        "runs on node node-2, not on node-1",
    ),
    "an agent whose token names no node": (
        token_of("system:serviceaccount:wattloop-agent:wattloop-agent"),
        403,
        "names no node; agents need Kubernetes 1.32 or newer",
    ),
}


@pytest.mark.parametrize("case", UNAUTHORIZED_CALLERS)
def test_a_caller_other_than_the_nodes_agent_is_rejected(api: NodeApi, case: str) -> None:
    review, code, message = UNAUTHORIZED_CALLERS[case]
    if review is not None:
        api.server.tokens["other"] = review
    answered = api.post(report(USAGE), token="other")
    assert answered[0] == code
    assert message in answered[1]
    assert api.stored() == {}


def test_an_agent_may_only_report_its_own_node(api: NodeApi) -> None:
    code, message = api.post(report(USAGE, node="node-2"))
    assert (code, message) == (403, "node: found node-2, expected node-1 as in the path")


def test_nothing_is_stored_of_a_report_with_a_pod_of_another_node(api: NodeApi) -> None:
    elsewhere = json.loads(json.dumps(api.server.objects["pods/digits-0-abc"]))
    elsewhere["metadata"] |= {"name": "digits-0-def", "uid": "uid-2"}
    elsewhere["spec"]["nodeName"] = "node-2"
    api.server.objects["pods/digits-0-def"] = elsewhere
    code, message = api.post(report(USAGE, replace(USAGE, pod="digits-0-def", pod_uid="uid-2")))
    assert (code, message) == (403, "pod team/digits-0-def runs on node node-2, not on node-1")
    assert api.stored() == {}


def test_without_an_agent_service_account_node_reports_are_rejected(tmp_path: Path) -> None:
    with running_node_api(tmp_path, service_account="") as api:
        code, message = api.post(report(USAGE))
    assert code == 403
    assert "--agent-service-account" in message


def test_a_failing_api_server_gives_503_and_not_403(api: NodeApi) -> None:
    api.server.away = True
    assert api.post(report(USAGE)) == (503, "the API server cannot be reached")


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (b" " * (MAX_NODE_REPORT_BYTES + 1), 413, "at most 1048576 bytes"),
        (b'{"sequence": NaN}', 422, "expected JSON: found NaN"),
        (report(USAGE) | {"pods": 1}, 422, "found the unknown field 'pods'"),
        (report(USAGE, USAGE), 422, "twice, expected one entry per pod uid, container and GPU"),
    ],
)
def test_an_invalid_body_is_rejected_with_its_field(api: NodeApi, body: Any, code: int, message: str) -> None:
    answered = api.post(body)
    assert answered[0] == code
    assert message in answered[1]


def test_the_body_of_an_unauthorized_caller_is_not_read(api: NodeApi) -> None:
    assert api.post(b"{", token="stranger")[0] == 401


@pytest.mark.parametrize("node", ["UPPER", "a_b", "-a", "a" * 254, "%00"])
def test_an_invalid_node_name_is_rejected(api: NodeApi, node: str) -> None:
    assert api.post(report(USAGE), node=node)[0] in (404, 422)


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
