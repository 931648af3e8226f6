"""An operator killed at any request, before the request or its response arrives, loses nothing.

Each case is a separate job whose operator is killed at another request. All cases run the same two
attempts concurrently, because the Job controller counts finished pods only once per second.
"""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes.dynamic import DynamicClient

from support.control_plane.fatal_requests import FATAL_REQUESTS, FatalRequests
from support.control_plane.fixtures import Ended, MakeJob, Train
from support.control_plane.in_process_operator import InProcessOperator, KillingTransport, TestClock
from support.control_plane.kubelet import NODE_NAME, Kubelet
from support.control_plane.objects import JOB, RECURRING_TRAINING_JOB, TRAINING_RECURRENCE, get_object, list_objects
from support.control_plane.training import Training
from wattloop_operator.cluster.api_transport import HttpTransport
from wattloop_operator.domain.names import JOB_LABEL, JobKey, recurrence_name, slot_of_request
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.store import PodEnergy, Store

# More than the simulated training reports, by the energy of a GPU in the remaining time.
ENERGY_MILLIJOULES = 7_500_000


def attempt(key: JobKey, number: int) -> str:
    return recurrence_name(key.name, 0, slot_of_request("first"), number)


class Case:
    """One job and its operator, which is killed at one of its requests."""

    def __init__(
        self, key: JobKey, transport: HttpTransport, store: Store, report_url: str, at: int, *, after: bool
    ) -> None:
        self.key = key
        self.killing_transport = KillingTransport(transport, at, after=after)
        self.operator = InProcessOperator(
            self.killing_transport,
            store,
            report_url,
            TestClock(),
            watch_transport=transport,
            agent_report_timeout_seconds=600,
        )

    def reconcile(self) -> None:
        self.operator.reconcile(self.key)

    def store_agent_report(self, training: Training) -> None:
        """Store the agent's report of the second attempt, after its pod has ended."""
        pod = training.pod["metadata"]
        recurrence = self.operator.cache.recurrences.get((self.key.namespace, attempt(self.key, 1)))
        assert recurrence.value.status.result is None, "it did not wait for its agent"
        energy = PodEnergy(
            job_uid=recurrence.value.spec.job_ref.uid,
            recurrence=0,
            attempt=1,
            node=NODE_NAME,
            ledger="ledger",
            pod_uid=pod["uid"],
            pod=pod["name"],
            container="train",
            gpu_uuid=f"GPU-{pod['uid']}",
            gpu_product="Simulated GPU",
            shared=False,
            energy_millijoules=ENERGY_MILLIJOULES,
            uncertainty_millijoules=1,
            start_time_seconds=90.0,
            time_seconds=140.0,
            ended=True,
            reported_at=datetime.now(UTC),
        )
        self.operator.store.pod_energies.record([energy])


def first_attempt_crashes(cases: list[Case], train: Train, kubelet: Kubelet, ended: Ended) -> None:
    for case in cases:
        case.reconcile()
    for case in cases:
        kubelet.fail(train(case.key, attempt(case.key, 0)).pod, exit_code=3)
    for case in cases:
        ended(case.key, attempt(case.key, 0))
        case.reconcile()


def second_attempt_reaches(cases: list[Case], train: Train, kubelet: Kubelet, ended: Ended) -> None:
    trainings = [train(case.key, attempt(case.key, 1)) for case in cases]
    for case, training in zip(cases, trainings, strict=True):
        case.reconcile()
        training.reach_target()
        kubelet.succeed(training.pod)
    for case, training in zip(cases, trainings, strict=True):
        ended(case.key, attempt(case.key, 1))
        case.reconcile()
        case.store_agent_report(training)
        case.reconcile()


def outcome_of(cluster: DynamicClient, case: Case) -> dict[str, Any]:
    """The final objects, statuses and records of a case, without names and times."""
    key = case.key

    def anonymous(text: Any) -> Any:
        if not isinstance(text, str):
            return text
        # The command that shows a pod's log has the pod's random suffix.
        shown = re.sub(rf"\bkubectl logs (\S+)-\w+ -n {key.namespace}", r"kubectl logs \1 -n NAMESPACE", text)
        return shown.replace(key.name, "JOB")

    selector = f"{JOB_LABEL}={key.name}"
    job = get_object(cluster, RECURRING_TRAINING_JOB, key.namespace, key.name)
    recurrences = list_objects(cluster, TRAINING_RECURRENCE, key.namespace, selector)
    jobs = list_objects(cluster, JOB, key.namespace, selector)
    records = case.operator.store.observations.of_job(job["metadata"]["uid"])
    return {
        "totals": job["status"]["totals"],
        "reasons": [each["reason"] for each in job["status"]["conditions"]],
        "recent": [(each["result"], each["gpuEnergyJoules"]) for each in job["status"]["recentRecurrences"]],
        "recurrences": [
            (
                anonymous(each["metadata"]["name"]),
                each["spec"]["index"],
                each["spec"]["attempt"],
                each["spec"]["batchSize"],
                each["status"]["result"],
                anonymous(each["status"]["message"]),
            )
            for each in recurrences
        ],
        "workloads": [anonymous(each["metadata"]["name"]) for each in jobs],
        "records": [(each.recurrence, each.attempt, each.result, each.energy_joules) for each in records],
    }


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fatal_requests", FATAL_REQUESTS)
@pytest.mark.parametrize("after", [False, True], ids=["before-it-arrives", "before-its-answer-does"])
def test_an_operator_killed_at_any_request_loses_and_repeats_nothing(
    after: bool,
    fatal_requests: FatalRequests,
    transport: HttpTransport,
    reporting: HttpService,
    store: Store,
    make_job: MakeJob,
    train: Train,
    ended: Ended,
    kubelet: Kubelet,
    cluster: DynamicClient,
) -> None:
    undisturbed = Case(make_job("undisturbed"), transport, store, reporting.url, 0, after=after)
    first_attempt_crashes([undisturbed], train, kubelet, ended)
    second_attempt_reaches([undisturbed], train, kubelet, ended)
    expected = outcome_of(cluster, undisturbed)
    assert [each[4] for each in expected["recurrences"]] == ["Crashed", "Reached"]
    assert expected["records"][1][3] == ENERGY_MILLIJOULES / 1000, "the agent's report was not used"
    calls = undisturbed.killing_transport.calls
    kinds = {(call.split()[0], call.rpartition("/")[2].partition("?")[0]) for call in calls}
    assert {("POST", "trainingrecurrences"), ("POST", "jobs"), ("PATCH", "status"), ("POST", "events")} <= kinds
    # Seeds depend on a job's uid, so sampled batch sizes may differ; no batch size is sampled yet
    # here.
    cases = {
        number: Case(make_job(f"killed-{number}"), transport, store, reporting.url, number, after=after)
        for number in fatal_requests(calls)
        # A request that only reads leaves the same whether it or its answer does not arrive.
        if not (after and calls[number - 1].startswith("GET "))
    }
    first_attempt_crashes([*cases.values()], train, kubelet, ended)
    second_attempt_reaches([*cases.values()], train, kubelet, ended)
    for number, case in cases.items():
        assert case.operator.starts == 2, f"the operator of call {number} was not killed once"
        call = case.killing_transport.calls[number - 1]
        assert outcome_of(cluster, case) == expected, f"killed at call {number}, {call}"
