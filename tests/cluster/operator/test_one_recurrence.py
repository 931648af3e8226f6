"""From a manifest to a measured cost in the status, and every way in which a run can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.control_plane.commands import ClusterCommand
from support.control_plane.in_process_operator import InProcessOperator, TestClock
from support.control_plane.kubelet import Kubelet, image_id
from support.control_plane.observed_runs import condition, first_of, learned
from support.control_plane.training import Training
from support.control_plane.waiting import Object
from wattloop.wire.training_messages import LimitMeasurement, Report
from wattloop_operator.domain.names import JobKey, recurrence_name, slot_of_request
from wattloop_operator.driver import reconcile
from wattloop_operator.reconcile.attempt.progress_deadline import hang_message
from wattloop_planner.observations import Outcome

MakeJob = Callable[..., JobKey]
Train = Callable[[JobKey, str], Training]
Ended = Callable[[JobKey, str], None]
JobOf = Callable[[JobKey], Object]
RecurrencesOf = Callable[[JobKey], list[Object]]


def test_a_run_reaches_its_target_and_its_cost_is_in_status(
    operator: InProcessOperator,
    make_job: MakeJob,
    train: Train,
    ended: Ended,
    kubelet: Kubelet,
    kubectl: ClusterCommand,
    job_of: JobOf,
    recurrences_of: RecurrencesOf,
) -> None:
    key = make_job()
    operator.reconcile(key)
    training = train(key, first_of(key))
    operator.reconcile(key)
    assert condition(recurrences_of(key)[0], "Running")["status"] == "True"
    training.reach_target()
    kubelet.succeed(training.pod)
    ended(key, first_of(key))
    operator.reconcile(key)
    (recurrence,) = recurrences_of(key)
    assert recurrence["status"]["result"] == "Reached"
    assert recurrence["status"]["workloadRef"]["name"] == first_of(key)
    # 200 W for 2 epochs of 10 s each; half of it, and half of 300 W for 20 s.
    assert float(recurrence["status"]["usage"]["gpuEnergyJoules"]) == 4000
    assert float(recurrence["status"]["cost"]["joules"]) == 5000
    status = job_of(key)["status"]
    assert (status["counts"]["reached"], status["counts"]["active"]) == (1, 0)
    assert status["recentRecurrences"][0]["costJoules"] == "5000"
    assert [record.result for record in operator.store.observations.of_name(key.namespace, key.name)] == ["Reached"]
    shown = kubectl("get", "rtj", key.name, namespace=key.namespace)
    assert shown.splitlines()[0].split("  ")[0] == "NAME"
    assert "5 kJ" in shown
    assert "Reached" in kubectl("get", "trec", namespace=key.namespace)
    events = kubectl.json("get", "events", namespace=key.namespace)["items"]
    assert {"RecurrenceStarted", "RecurrenceReached"} <= {each["reason"] for each in events}


def test_the_image_that_a_pod_ran_is_in_status_observation_and_power_profile(
    operator: InProcessOperator,
    make_job: MakeJob,
    train: Train,
    ended: Ended,
    kubelet: Kubelet,
    recurrences_of: RecurrencesOf,
) -> None:
    key = make_job()
    operator.reconcile(key)
    assert "imageDigest" not in recurrences_of(key)[0].get("status", {})
    training = train(key, first_of(key))
    operator.reconcile(key)
    _, _, digest = image_id(training.pod["spec"]["containers"][0]["image"]).partition("@")
    assert recurrences_of(key)[0]["status"]["imageDigest"] == digest
    training.report(1.0, 0.5, profile=tuple(LimitMeasurement(watts, 100.0, 1.0, 0.1) for watts in (200.0, 300.0)))
    training.report(2.0, 0.95, finished=True)
    kubelet.succeed(training.pod)
    ended(key, first_of(key))
    operator.reconcile(key)
    (recurrence,) = recurrences_of(key)
    assert (recurrence["status"]["result"], recurrence["status"]["imageDigest"]) == ("Reached", digest)
    (record,) = operator.store.observations.of_name(key.namespace, key.name)
    assert record.image_digest == digest
    (profile,) = operator.store.profiles.of_job(record.job_uid)
    assert profile.key.image_digest == digest


def test_a_pod_sees_the_batch_size_in_its_args(operator: InProcessOperator, make_job: MakeJob, train: Train) -> None:
    key = make_job()
    operator.reconcile(key)
    training = train(key, first_of(key))
    assert training.environment.batch_size == 64
    assert training.pod["spec"]["containers"][0]["args"] == ["--batch", "$(WATTLOOP_BATCH_SIZE)"]


@pytest.mark.parametrize(
    ("exit_code", "reason", "message"),
    [(3, "Error", "exit code 3"), (137, "OOMKilled", "out of memory")],
)
def test_a_crashed_process_counts_against_its_batch_size(
    exit_code: int,
    reason: str,
    message: str,
    operator: InProcessOperator,
    make_job: MakeJob,
    train: Train,
    ended: Ended,
    kubelet: Kubelet,
    recurrences_of: RecurrencesOf,
) -> None:
    key = make_job(retryPolicy={"limit": 0})
    operator.reconcile(key)
    kubelet.fail(train(key, first_of(key)).pod, exit_code=exit_code, reason=reason)
    ended(key, first_of(key))
    operator.reconcile(key)
    (recurrence,) = recurrences_of(key)
    assert recurrence["status"]["result"] == "Crashed"
    assert condition(recurrence, "Complete")["reason"] == "Crashed"
    assert message in recurrence["status"]["message"]
    assert [each.outcome for each in learned(operator, key)] == [Outcome.CRASHED]


def test_a_rank_that_is_killed_has_an_event_with_its_pod_and_node(
    operator: InProcessOperator,
    make_job: MakeJob,
    ended: Ended,
    kubelet: Kubelet,
    kubectl: ClusterCommand,
    token_of_pod: Callable[[Object, str], str],
    recurrences_of: RecurrencesOf,
    tmp_path: Path,
) -> None:
    container = {"name": "train", "image": "example.invalid/train:1"}
    indexed = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
    pod_template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    key = make_job(retryPolicy={"limit": 0}, template={"job": {**indexed, "template": pod_template}})
    operator.reconcile(key)
    pods = [kubelet.run(pod) for pod in kubelet.pods_of_job(first_of(key), key.namespace, count=3)]
    ranks = {int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]): pod for pod in pods}
    for rank, pod in ranks.items():
        channel = Training(pod, token_of_pod, tmp_path).channel
        sent = Report(
            sequence=1,
            epoch=1.0,
            metric=0.5,
            evaluations=1,
            rank=rank,
            ranks=3,
            failure="" if rank == 2 else "RuntimeError",
            consequence=True,
        )
        assert channel.send_last(sent, 60.0) is not None
    kubelet.fail(ranks[2], exit_code=137)
    ended(key, first_of(key))
    operator.reconcile(key)
    (recurrence,) = recurrences_of(key)
    name, node = ranks[2]["metadata"]["name"], ranks[2]["spec"]["nodeName"]
    text = f"rank 2 of 3 ended without a report; pod {name} of index 2 on node {node} failed first"
    assert condition(recurrence, "RanksHealthy")["message"] == text
    events = kubectl.json("get", "events", namespace=key.namespace)["items"]
    dead = {each["involvedObject"]["kind"]: each for each in events if each["reason"] == "RankDied"}
    assert dead.keys() == {"RecurringTrainingJob", "TrainingRecurrence"}
    assert {each["type"] for each in dead.values()} == {"Warning"}
    assert all(text in each["message"] for each in dead.values())


def test_the_pod_and_the_node_of_a_rank_that_hangs_are_known_by_its_token(
    operator: InProcessOperator,
    make_job: MakeJob,
    kubelet: Kubelet,
    token_of_pod: Callable[[Object, str], str],
    tmp_path: Path,
) -> None:
    container = {"name": "train", "image": "example.invalid/train:1"}
    indexed = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
    pod_template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    objective = {"target": {"metric": "accuracy", "threshold": "0.9"}, "maxEpochs": 50, "progressDeadlineSeconds": 600}
    key = make_job(objective=objective, template={"job": {**indexed, "template": pod_template}})
    operator.reconcile(key)
    pods = [kubelet.run(pod) for pod in kubelet.pods_of_job(first_of(key), key.namespace, count=2)]
    operator.reconcile(key)
    pods.sort(key=lambda pod: str(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]))
    # The second pod has the first rank, as under torchrun's dynamic rendezvous.
    sent = Report(sequence=1, epoch=1.0, metric=0.5, evaluations=1, ranks=2)
    assert Training(pods[1], token_of_pod, tmp_path).channel.send_last(sent, 60.0) is not None
    operator.reconcile(key)
    snapshot = operator.backend.snapshot(key)
    assert snapshot is not None
    (recurrence,), (workload,) = snapshot.recurrences, snapshot.workloads.values()
    where = f"pod {pods[1]['metadata']['name']} of index 1 on node {pods[1]['spec']['nodeName']}"
    assert f"rank 0 in {where} is silent longest" in hang_message(recurrence, workload)


def test_a_process_that_hangs_is_ended_at_its_deadline(
    operator: InProcessOperator,
    make_job: MakeJob,
    train: Train,
    clock: TestClock,
    kubectl: ClusterCommand,
    recurrences_of: RecurrencesOf,
) -> None:
    key = make_job(activeDeadlineSeconds=600, retryPolicy={"limit": 0})
    operator.reconcile(key)
    training = train(key, first_of(key))
    training.report(3.0, 0.5)
    wake_at = operator.reconcile(key)
    assert wake_at is not None
    clock.advance(601)
    operator.reconcile(key)
    (recurrence,) = recurrences_of(key)
    assert recurrence["status"]["result"] == "DeadlineExceeded"
    assert "its last report was for epoch 3" in recurrence["status"]["message"]
    assert kubectl.json("get", "jobs", namespace=key.namespace)["items"] == []
    (bound,) = learned(operator, key)
    assert (bound.outcome, bound.epochs) == (Outcome.STOPPED, 3)


def test_a_process_without_reports_teaches_nothing(
    operator: InProcessOperator,
    make_job: MakeJob,
    train: Train,
    ended: Ended,
    kubelet: Kubelet,
    job_of: JobOf,
    recurrences_of: RecurrencesOf,
) -> None:
    key = make_job()
    operator.reconcile(key)
    kubelet.succeed(train(key, first_of(key)).pod)
    ended(key, first_of(key))
    operator.reconcile(key)
    (recurrence,) = recurrences_of(key)
    assert condition(recurrence, "Complete")["reason"] == "MissingMetric"
    assert "run.report(metric=" in recurrence["status"]["message"]
    job = job_of(key)
    assert condition(job, "LastRunSucceeded")["reason"] == "MissingMetric"
    assert learned(operator, key) == ()


def test_a_run_that_never_reaches_the_target_is_exhausted(
    operator: InProcessOperator,
    make_job: MakeJob,
    train: Train,
    ended: Ended,
    kubelet: Kubelet,
    job_of: JobOf,
    recurrences_of: RecurrencesOf,
) -> None:
    key = make_job(retryPolicy={"limit": 0})
    operator.reconcile(key)
    training = train(key, first_of(key))
    for epoch in (1.0, 2.0, 3.0):
        training.report(epoch, 0.5, finished=epoch == 3.0)
    kubelet.succeed(training.pod)
    ended(key, first_of(key))
    operator.reconcile(key)
    (recurrence,) = recurrences_of(key)
    assert condition(recurrence, "Complete")["reason"] == "Exhausted"
    assert "accuracy got to 0.5, the target is 0.9" in recurrence["status"]["message"]
    assert [each.outcome for each in learned(operator, key)] == [Outcome.EXHAUSTED]


def test_a_crashed_attempt_is_retried(
    operator: InProcessOperator,
    make_job: MakeJob,
    train: Train,
    ended: Ended,
    kubelet: Kubelet,
    recurrences_of: RecurrencesOf,
) -> None:
    key = make_job()
    operator.reconcile(key)
    kubelet.fail(train(key, first_of(key)).pod)
    ended(key, first_of(key))
    operator.reconcile(key)
    results = [each["status"].get("result") for each in recurrences_of(key)]
    assert results == ["Crashed", None]
    training = train(key, first_of(key, attempt=1))
    training.reach_target()
    kubelet.succeed(training.pod)
    ended(key, first_of(key, attempt=1))
    operator.reconcile(key)
    assert [each["status"]["result"] for each in recurrences_of(key)] == ["Crashed", "Reached"]


def test_a_rejected_template_is_reported_and_starts_nothing_until_it_is_fixed(
    operator: InProcessOperator,
    make_job: MakeJob,
    job_of: JobOf,
    kubectl: ClusterCommand,
    recurrences_of: RecurrencesOf,
) -> None:
    bad = {"restartPolicy": "Never", "containers": [{"name": "train"}, {"name": "train", "image": "b"}]}
    key = make_job(template={"job": {"template": {"spec": bad}}})
    operator.reconcile(key)
    ready = condition(job_of(key), "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "TemplateRejected")
    assert "Duplicate value" in ready["message"]
    assert recurrences_of(key) == []
    events = kubectl.json("get", "events", namespace=key.namespace)["items"]
    assert "TemplateRejected" in {each["reason"] for each in events}
    make_job()
    operator.reconcile(key)
    assert condition(job_of(key), "Ready")["status"] == "True"
    assert len(recurrences_of(key)) == 1


def test_kubectl_describes_a_recurrence_with_its_events_and_a_deleted_one_leaves_an_event(
    operator: InProcessOperator,
    make_job: MakeJob,
    train: Train,
    ended: Ended,
    kubelet: Kubelet,
    kubectl: ClusterCommand,
) -> None:
    key = make_job()
    operator.reconcile(key)
    training = train(key, first_of(key))
    training.reach_target()
    kubelet.succeed(training.pod)
    ended(key, first_of(key))
    operator.reconcile(key)
    described = kubectl("describe", "trec", first_of(key), namespace=key.namespace).partition("Events:")[2]
    assert "RecurrenceStarted" in described
    assert "RecurrenceReached" in described
    make_job(runRequest="second")
    operator.reconcile(key)
    second = recurrence_name(key.name, 1, slot_of_request("second"), 0)
    kubectl("delete", "trec", second, namespace=key.namespace)
    operator.restart()
    operator.reconcile(key)
    described = kubectl("describe", "rtj", key.name, namespace=key.namespace).partition("Events:")[2]
    assert "RecurrenceDeleted" in described
    assert f"{second} was deleted while it was active" in described


def test_an_ended_recurrence_leaves_one_event_whoever_deletes_it(
    operator: InProcessOperator,
    make_job: MakeJob,
    train: Train,
    ended: Ended,
    kubelet: Kubelet,
    kubectl: ClusterCommand,
) -> None:
    def deletions(key: JobKey) -> list[str]:
        events = kubectl.json("get", "events", namespace=key.namespace)["items"]
        return sorted(each["message"] for each in events if each["reason"] == "RecurrenceDeleted")

    key, names = make_job(), []
    for index, request in enumerate(("first", "second", "third")):
        make_job(runRequest=request, successfulHistoryLimit=2)
        operator.reconcile(key)
        name = recurrence_name(key.name, index, slot_of_request(request), 0)
        training = train(key, name)
        training.reach_target()
        kubelet.succeed(training.pod)
        ended(key, name)
        operator.reconcile(key)
        names.append(name)
    by_limit = f"recurrence 0 ({names[0]}) was deleted by spec.successfulHistoryLimit; what was learned from it is kept"
    assert deletions(key) == [by_limit]
    kubectl("delete", "trec", names[1], namespace=key.namespace)
    operator.reconcile(key)
    operator.reconcile(key)
    operator.restart()
    operator.reconcile(key)
    by_user = f"recurrence 1 ({names[1]}) was deleted, and not by a history limit; what was learned from it is kept"
    assert deletions(key) == [by_limit, f"{key}: {by_user}"]
    # The watch of the recurrences reports first that the job and all that is its own are deleted.
    kubectl("delete", "rtj", key.name, "--cascade=foreground", namespace=key.namespace)
    (cached,) = operator.cache.recurrences.all()
    assert operator.cache.recurrences.remove(cached.key, cached.uid)
    assert reconcile(operator.backend, key, operator.clock) is None
    assert len(deletions(key)) == 2


def test_an_object_of_the_same_name_that_wattloop_does_not_own_is_not_touched(
    operator: InProcessOperator, make_job: MakeJob, kubectl: ClusterCommand, recurrences_of: RecurrencesOf
) -> None:
    key = make_job()
    pod = {"restartPolicy": "Never", "containers": [{"name": "own", "image": "own:1"}]}
    unowned = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": first_of(key)},
        "spec": {"suspend": True, "template": {"spec": pod}},
    }
    kubectl.apply(unowned, namespace=key.namespace)
    before = kubectl.json("get", "job", first_of(key), namespace=key.namespace)
    operator.reconcile(key)
    (recurrence,) = recurrences_of(key)
    assert recurrence["status"]["result"] == "NameConflict"
    assert "that Wattloop did not create" in recurrence["status"]["message"]
    after = kubectl.json("get", "job", first_of(key), namespace=key.namespace)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"]
    assert "ownerReferences" not in after["metadata"]


def test_a_workload_that_a_user_deletes_is_not_started_again(
    operator: InProcessOperator,
    make_job: MakeJob,
    train: Train,
    kubectl: ClusterCommand,
    recurrences_of: RecurrencesOf,
) -> None:
    key = make_job()
    operator.reconcile(key)
    train(key, first_of(key))
    operator.reconcile(key)
    kubectl("delete", "job", first_of(key), "--cascade=foreground", namespace=key.namespace)
    operator.restart()
    operator.reconcile(key)
    (recurrence,) = recurrences_of(key)
    assert recurrence["status"]["result"] == "Cancelled"
    assert kubectl.json("get", "jobs", namespace=key.namespace)["items"] == []
