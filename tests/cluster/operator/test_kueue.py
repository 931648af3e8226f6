"""Jobs in a queue of the real Kueue: they wait, are admitted and learn, are preempted and evicted without blame."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kubernetes.dynamic import DynamicClient

from support.control_plane.commands import ClusterCommand
from support.control_plane.driven_job import DrivenJob, condition, recurrences_of_job
from support.control_plane.example_job import EXAMPLES, ExampleJob, example_job
from support.control_plane.fatal_requests import FATAL_REQUESTS, FatalRequests
from support.control_plane.fixtures import StartControllers
from support.control_plane.in_process_operator import InProcessOperator, KillingTransport, TestClock
from support.control_plane.job_manifest import job_manifest
from support.control_plane.kubelet import Kubelet
from support.control_plane.kueue_controller import API_VERSION, kueue_controller, queue_objects
from support.control_plane.objects import JOB, apply_object, get_object, list_objects
from support.control_plane.training import EPOCH_SECONDS, POWER_WATTS, TokenOfPod, Training
from support.control_plane.waiting import Object, wait_until
from wattloop_operator.cluster.api_transport import HttpTransport
from wattloop_operator.cluster.workload_waits import FIRST_POLL_SECONDS
from wattloop_operator.domain.names import JOB_LABEL, JobKey, recurrence_name, slot_of_request
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.store import Store
from wattloop_operator.workloads.kueue import is_suspended

pytestmark = pytest.mark.long

QUEUE_LABEL, PRIORITY_LABEL = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
POD = {"restartPolicy": "Never", "containers": [{"name": "train", "image": "example.invalid/train:1"}]}


def example_in_queue(name: str, driven: DrivenJob, priority: str) -> ExampleJob:
    """An example whose workloads wait in the queue `team`."""
    example = example_job(name, driven)
    example.manifest["spec"]["template"] = queued(example.manifest["spec"]["template"], priority)
    return example


def queued(template: dict[str, Any], priority: str = "") -> dict[str, Any]:
    """A template whose workloads wait in the queue `team`."""
    labels = {QUEUE_LABEL: "team", **({PRIORITY_LABEL: priority} if priority else {})}
    return {**template, "metadata": {"labels": labels}}


QUEUED = {"template": queued(job_manifest()["spec"]["template"])}
HOUR_SECONDS = 3600


@pytest.fixture(scope="module")
def _kueue(
    programs: Mapping[str, Path],
    start_controllers: StartControllers,
    kubectl: ClusterCommand,
    cluster: DynamicClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    if "kueue" not in programs:
        pytest.skip("Kueue is not built: make programs builds it, or says why it cannot")
    # Before it, as it looks for other kinds less and less often.
    for kind in ("job-set", "train-job", "pytorch-job", "ray-job"):
        if all(each.program in programs for each in EXAMPLES[kind].controllers):
            start_controllers(kind)
    with kueue_controller(programs["kueue"], kubectl, cluster, tmp_path_factory.mktemp("kueue")):
        yield


@pytest.fixture
def queue(_kueue: None, kubectl: ClusterCommand, namespace: str) -> str:
    """The LocalQueue `team` of the test's namespace, with the quota of one pod."""
    kubectl.apply(*queue_objects(namespace, quota=1))
    return namespace


@pytest.fixture
def waiting(queue: str, driven: DrivenJob, kubectl: ClusterCommand) -> DrivenJob:
    """A job whose first attempt waits, because another Job has the quota."""
    kubectl.apply(blocker("blocker"), namespace=queue)
    await_suspended(driven.cluster, queue, "blocker", suspended=False)
    driven.begin(**QUEUED)
    await_workload(driven, has("QuotaReserved", "False"), "without quota")
    driven.reconcile()
    return driven


def blocker(name: str, **labels: str) -> Object:
    """A Job of somebody else, which needs the whole quota."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {QUEUE_LABEL: "team", **labels}},
        "spec": {"backoffLimit": 0, "template": {"spec": POD}},
    }


def has(kind: str, status: str) -> Callable[[Object], bool]:
    return lambda workload: any(
        each["type"] == kind and each["status"] == status for each in workload.get("status", {}).get("conditions") or []
    )


def await_workload(job: DrivenJob | ExampleJob, holds: Callable[[Object], bool], what: str, name: str = "") -> Object:
    """Wait until the Workload of an attempt is in a state."""
    driven, kind = (job.driven, job.kind) if isinstance(job, ExampleJob) else (job, JOB)
    uid = get_object(driven.cluster, kind, driven.key.namespace, name or driven.name_of())["metadata"]["uid"]
    # The operator reads one again after a second at the soonest.
    driven.operator.clock.advance(FIRST_POLL_SECONDS)
    return wait_until(
        driven.cluster,
        (API_VERSION, "Workload"),
        lambda found: next(filter(holds, found), None),
        f"the Workload of {name or driven.name_of()} to be {what}",
        namespace=driven.key.namespace,
        label_selector=f"kueue.x-k8s.io/job-uid={uid}",
    )


def await_suspended(cluster: DynamicClient, namespace: str, name: str, *, suspended: bool) -> None:
    wait_until(
        cluster,
        JOB,
        lambda jobs: any(each["spec"].get("suspend", False) is suspended for each in jobs),
        f"the Job {name} to be {'suspended' if suspended else 'resumed'}",
        namespace=namespace,
        field_selector=f"metadata.name={name}",
    )


def reconcile_later(driven: DrivenJob, clock: TestClock) -> None:
    """Reconcile when the operator would read the Workload again."""
    clock.advance(11)
    driven.reconcile()


def preempt(driven: DrivenJob, kubectl: ClusterCommand) -> None:
    """Another Job of a higher priority takes the quota."""
    namespace = driven.key.namespace
    kubectl.apply(blocker("urgent", **{PRIORITY_LABEL: f"{namespace}-high"}), namespace=namespace)
    await_suspended(driven.cluster, namespace, driven.name_of(), suspended=True)


def test_a_job_waits_for_quota_without_cost_is_shown_with_the_reason_and_learns_when_it_is_admitted(
    waiting: DrivenJob, kubectl: ClusterCommand, clock: TestClock
) -> None:
    namespace, name = waiting.key.namespace, waiting.name_of()
    workload = await_workload(waiting, has("QuotaReserved", "False"), "without quota")
    reserved = next(each for each in workload["status"]["conditions"] if each["type"] == "QuotaReserved")
    queued = condition(waiting.recurrence, "Queued")
    assert queued["status"] == "True"
    assert queued["reason"] == reserved["reason"]
    assert queued["message"] == f"queue team: {reserved['message']}"
    assert "insufficient unused quota" in queued["message"]
    assert queued["lastTransitionTime"] == workload["metadata"]["creationTimestamp"]
    assert condition(waiting.recurrence, "Running")["reason"] == "Queued"
    assert (waiting.job["status"]["state"], waiting.job["status"]["failure"]) == ("Waiting", "Queued")
    assert waiting.operator.backend.requeue_after_seconds(waiting.key) == 10
    clock.advance(2 * HOUR_SECONDS)
    waiting.reconcile()
    assert "startTime" not in waiting.recurrence["status"]
    assert waiting.results == [None]

    kubectl("delete", "job", "blocker", namespace=namespace)
    await_suspended(waiting.cluster, namespace, name, suspended=False)
    training = waiting.train()
    waiting.reconcile()
    assert condition(waiting.recurrence, "Queued")["reason"] == "Admitted"
    assert condition(waiting.recurrence, "Running")["status"] == "True"
    assert waiting.operator.backend.requeue_after_seconds(waiting.key) is None
    waiting.reach_target(training)
    status = waiting.recurrence["status"]
    assert status["result"] == "Reached"
    # The two hours in the queue are not among them.
    assert float(status["usage"]["durationSeconds"]) == 20
    waited = re.fullmatch(r"queue team: it waited (\d+) s", condition(waiting.recurrence, "Queued")["message"])
    assert 2 * HOUR_SECONDS <= int(waited[1]) < 3 * HOUR_SECONDS, "the test itself takes time"
    assert len(waiting.learned) == 1


def test_a_preempted_job_is_disrupted_and_tried_again_and_no_batch_size_is_blamed(
    queue: str, driven: DrivenJob, kubectl: ClusterCommand, clock: TestClock
) -> None:
    driven.begin(template=queued(QUEUED["template"], f"{queue}-low"))
    workload = await_workload(driven, has("Admitted", "True"), "admitted")
    assert (workload["spec"]["queueName"], workload["spec"]["priority"]) == ("team", 10)
    await_suspended(driven.cluster, queue, driven.name_of(), suspended=False)
    training = driven.train()
    driven.reconcile()
    assert training.report(1.0, 0.5) is not None
    preempt(driven, kubectl)
    reconcile_later(driven, clock)
    first, second = driven.recurrences
    assert first["status"]["result"] == "Disrupted"
    assert "its queue evicted it: Preempted: Preempted to accommodate a workload" in first["status"]["message"]
    assert first["spec"]["batchSize"] == second["spec"]["batchSize"]
    assert driven.learned == ()
    # The first attempt does not run again when there is quota.
    names = [each["metadata"]["name"] for each in list_objects(driven.cluster, JOB, queue, JOB_LABEL)]
    assert names == [driven.name_of(1)]

    kubectl("delete", "job", "urgent", namespace=queue)
    await_suspended(driven.cluster, queue, driven.name_of(1), suspended=False)
    again = driven.train(driven.name_of(1))
    driven.reconcile()
    driven.reach_target(again)
    assert driven.results == ["Disrupted", "Reached"]
    assert [each.outcome.value for each in driven.learned] == ["reached"]


def test_an_evicted_job_is_disrupted_and_waits_again_until_its_queue_starts(
    queue: str, driven: DrivenJob, kubectl: ClusterCommand, clock: TestClock
) -> None:
    driven.begin(**QUEUED)
    await_suspended(driven.cluster, queue, driven.name_of(), suspended=False)
    driven.train()
    driven.reconcile()
    stop = ("patch", "clusterqueue", queue, "--type=merge")
    kubectl(*stop, '--patch={"spec":{"stopPolicy":"HoldAndDrain"}}')
    await_suspended(driven.cluster, queue, driven.name_of(), suspended=True)
    reconcile_later(driven, clock)
    assert driven.results == ["Disrupted", None]
    assert "ClusterQueueStopped" in driven.recurrences[0]["status"]["message"]
    await_workload(driven, has("QuotaReserved", "False"), "without quota", driven.name_of(1))
    reconcile_later(driven, clock)
    assert condition(driven.recurrences[1], "Queued")["status"] == "True"
    kubectl(*stop, '--patch={"spec":{"stopPolicy":"None"}}')
    await_suspended(driven.cluster, queue, driven.name_of(1), suspended=False)
    driven.reach_target(driven.train(driven.name_of(1)))
    assert driven.results == ["Disrupted", "Reached"]


def test_a_deactivated_job_says_how_to_go_on_and_does_so(
    waiting: DrivenJob, kubectl: ClusterCommand, clock: TestClock
) -> None:
    namespace = waiting.key.namespace
    workload = await_workload(waiting, has("QuotaReserved", "False"), "without quota")["metadata"]["name"]
    patch = ("patch", "workload", workload, "--type=merge")
    kubectl(*patch, '--patch={"spec":{"active":false}}', namespace=namespace)
    reconcile_later(waiting, clock)
    queued = condition(waiting.recurrence, "Queued")
    assert queued["reason"] == "Deactivated"
    said = f'kubectl patch workload {workload} --type=merge --patch \'{{"spec":{{"active":true}}}}\''
    assert said in queued["message"]
    assert waiting.results == [None]
    kubectl(*patch, '--patch={"spec":{"active":true}}', namespace=namespace)
    kubectl("delete", "job", "blocker", namespace=namespace)
    await_suspended(waiting.cluster, namespace, waiting.name_of(), suspended=False)


def test_a_job_that_is_deleted_while_it_waits_is_cancelled_and_not_started_again(
    waiting: DrivenJob, kubectl: ClusterCommand
) -> None:
    kubectl("delete", "job", waiting.name_of(), namespace=waiting.key.namespace)
    waiting.reconcile()
    assert waiting.results == ["Cancelled"]
    waiting.reconcile()
    assert list_objects(waiting.cluster, JOB, waiting.key.namespace, JOB_LABEL) == []


def test_a_result_that_arrives_during_the_wait_leads_to_a_new_decision(
    queue: str, driven: DrivenJob, kubectl: ClusterCommand, clock: TestClock
) -> None:
    sizes = {"default": 64, "candidates": [32, 64], "policy": "Zeus"}
    concurrent = {**QUEUED, "concurrencyPolicy": "Allow", "batchSize": sizes}
    driven.begin(**concurrent)
    await_suspended(driven.cluster, queue, driven.name_of(), suspended=False)
    training = driven.train()
    driven.apply(**concurrent, runRequest="second")
    driven.reconcile()
    second = driven.name_of(index=1, request="second")
    await_workload(driven, has("QuotaReserved", "False"), "without quota", second)
    # The quota that the first one leaves is for nobody yet.
    stop = ("patch", "clusterqueue", queue, "--type=merge")
    kubectl(*stop, '--patch={"spec":{"stopPolicy":"Hold"}}')
    clock.advance(11)
    driven.reach_target(training)
    replaced, replacement = driven.recurrences[1:]
    assert (replaced["spec"]["batchSize"], replacement["spec"]["batchSize"]) == (64, 32)
    assert replaced["status"]["result"] == "Disrupted"
    assert "is chosen instead of 64" in replaced["status"]["message"]
    third = replacement["metadata"]["name"]
    kubectl(*stop, '--patch={"spec":{"stopPolicy":"None"}}')
    await_suspended(driven.cluster, queue, third, suspended=False)
    driven.reach_target(driven.train(third))
    assert driven.results == ["Reached", "Disrupted", "Reached"]


def test_a_train_job_a_job_set_and_a_job_of_three_teams_share_a_queue_and_each_learns(
    queue: str, start_controllers: StartControllers, driven: DrivenJob, kubectl: ClusterCommand, clock: TestClock
) -> None:
    start_controllers("train-job")
    kubectl.apply(*queue_objects(queue, quota=2))
    low, high = (f"{queue}-{name}" for name in ("low", "high"))
    job = started(kubectl, example_in_queue("job", driven, low))
    (pod,) = job.run()
    assert job.driven.training_of(pod).report(1.0, 0.5) is not None
    # Its two pods do not fit beside the one that runs.
    job_set = started(kubectl, example_in_queue("job-set", driven, low))
    await_workload(job_set, has("QuotaReserved", "False"), "without quota")
    reconcile_later(job_set.driven, clock)
    assert condition(job_set.driven.recurrence, "Queued")["status"] == "True"

    train_job = started(kubectl, example_in_queue("train-job", driven, high))
    pods = train_job.run()
    assert await_workload(train_job, has("Admitted", "True"), "admitted")["spec"]["priority"] == 1000
    reconcile_later(job.driven, clock)
    assert job.driven.results == ["Disrupted", None]
    train(train_job, pods)
    train(job_set, job_set.run())
    train(job, job.run(attempt=1), attempt=1)
    for each in (job, job_set, train_job):
        assert_learned(each)


def test_a_pytorch_job_and_a_ray_job_wait_without_cost_are_evicted_and_each_learns(
    queue: str, start_controllers: StartControllers, driven: DrivenJob, kubectl: ClusterCommand, clock: TestClock
) -> None:
    kinds = ("pytorch-job", "ray-job")
    for kind in kinds:
        start_controllers(kind)
    kubectl.apply(*queue_objects(queue, quota=0))
    jobs = [started(kubectl, example_in_queue(kind, driven, f"{queue}-low")) for kind in kinds]
    for job in jobs:
        workload = await_workload(job, has("QuotaReserved", "False"), "without quota")
        assert (workload["spec"]["queueName"], workload["spec"]["priority"]) == ("team", 10)
    clock.advance(2 * HOUR_SECONDS)
    for job in jobs:
        job.driven.reconcile()
        assert condition(job.driven.recurrence, "Queued")["status"] == "True"
        assert "startTime" not in job.driven.recurrence["status"]

    # Two pods, and the head, the worker and the pod that submits the program.
    kubectl.apply(queue_objects(queue, quota=5)[1])
    for job in jobs:
        assert job.driven.training_of(job.run()[0]).report(1.0, 0.5) is not None
        assert condition(job.driven.recurrence, "Queued")["reason"] == "Admitted"
    stop = ("patch", "clusterqueue", queue, "--type=merge")
    kubectl(*stop, '--patch={"spec":{"stopPolicy":"HoldAndDrain"}}')
    for job in jobs:
        await_taken(job)
        reconcile_later(job.driven, clock)
        assert job.driven.results == ["Disrupted", None]
        assert "its queue evicted it: ClusterQueueStopped" in job.driven.recurrences[0]["status"]["message"]
        assert job.driven.learned == ()

    kubectl(*stop, '--patch={"spec":{"stopPolicy":"None"}}')
    for job in jobs:
        train(job, job.run(attempt=1), attempt=1)
        assert_learned(job)


def await_taken(job: ExampleJob) -> None:
    """Wait until its queue has taken the quota of the first attempt."""
    wait_until(
        job.driven.cluster,
        job.kind,
        lambda found: any(map(is_suspended, found)),
        f"the {job.kind[1]} to be evicted",
        namespace=job.driven.key.namespace,
    )


def started(kubectl: ClusterCommand, job: ExampleJob) -> ExampleJob:
    """Apply and reconcile a job."""
    kubectl.apply(job.manifest, namespace=job.driven.key.namespace)
    job.driven.reconcile()
    return job


def train(job: ExampleJob, pods: list[Object], attempt: int = 0) -> None:
    """Train in the pods of an attempt until the target, and end them without an error."""
    job.driven.training_of(pods[0]).reach_target()
    job.succeed(pods, attempt)
    job.await_end(attempt)


def assert_learned(job: ExampleJob) -> None:
    """Check that its last attempt took two epochs, whatever it waited, and that nothing else is learned."""
    last = job.driven.recurrences[-1]
    assert last["status"]["result"] == "Reached"
    assert float(last["status"]["usage"]["durationSeconds"]) == 2 * EPOCH_SECONDS
    assert float(last["status"]["usage"]["gpuEnergyJoules"]) == 2 * EPOCH_SECONDS * POWER_WATTS
    assert condition(last, "Queued")["reason"] == "Admitted"
    assert [learned.outcome.value for learned in job.driven.learned] == ["reached"]


@pytest.mark.parametrize("fatal_requests", FATAL_REQUESTS)
def test_an_operator_killed_at_any_request_while_the_job_waits_starts_one_child_that_learns(
    fatal_requests: FatalRequests,
    queue: str,
    kubectl: ClusterCommand,
    cluster: DynamicClient,
    kubelet: Kubelet,
    transport: HttpTransport,
    reporting: HttpService,
    token_of_pod: TokenOfPod,
    crds: None,
    tmp_path: Path,
    store: Store,
) -> None:
    kubectl.apply(blocker("blocker"), namespace=queue)
    await_suspended(cluster, queue, "blocker", suspended=False)

    def driven_by(name: str, fatal: int, *, after: bool) -> tuple[DrivenJob, KillingTransport]:
        apply_object(cluster, job_manifest(name, **QUEUED), queue)
        killing = KillingTransport(transport, fatal, after=after)
        operator = InProcessOperator(killing, store, reporting.url, TestClock(), watch_transport=transport)
        key = JobKey(queue, name)
        return DrivenJob(key, operator, kubelet, cluster, lambda pod: Training(pod, token_of_pod, tmp_path)), killing

    undisturbed, killing = driven_by("undisturbed", 0, after=False)
    undisturbed.reconcile()
    calls, jobs = list(killing.calls), [undisturbed]
    # What it calls before that is the same without a queue.
    first = next(number for number, call in enumerate(calls, start=1) if "kueue.x-k8s.io" in call)
    for place in fatal_requests(calls[first - 1 :]):
        number = first - 1 + place
        call = calls[number - 1]
        for after in (False, True) if not call.startswith("GET ") else (False,):
            job, _ = driven_by(f"killed-{number}-{'after' if after else 'before'}", number, after=after)
            job.reconcile()
            assert job.operator.starts == 2, f"the operator was not killed at {call}"
            jobs.append(job)
    for job in jobs:
        (found,) = recurrences_of_job(cluster, job.key)
        assert found["metadata"]["name"] == recurrence_name(job.key.name, 0, slot_of_request("first"), 0)
        assert condition(found, "Queued")["status"] == "True"
    quota = queue_objects(queue, quota=len(jobs) + 1)[1]
    kubectl.apply(quota)
    for job in jobs:
        await_suspended(cluster, queue, job.name_of(), suspended=False)
        job.reach_target(job.train())
        assert job.results == ["Reached"]
