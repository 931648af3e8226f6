"""From a manifest to a measured cost in the status, and every way in which a run can fail."""

from typing import Any

from support.control_plane.commands import ClusterCommand
from support.control_plane.driven_job import DrivenJob, condition
from support.control_plane.in_process_operator import TestClock
from support.control_plane.kubelet import image_id
from wattloop.wire.training_messages import LimitMeasurement, Report
from wattloop_operator.driver import reconcile
from wattloop_operator.reconcile.attempt.progress_deadline import hang_message
from wattloop_planner.observations import Outcome


def of_ranks(count: int) -> dict[str, Any]:
    """The template of a Job with a pod for each rank."""
    container = {"name": "train", "image": "example.invalid/train:1"}
    pods = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"spec": {"completionMode": "Indexed", "completions": count, "parallelism": count, "template": pods}}


def reasons(kubectl: ClusterCommand, namespace: str) -> set[str]:
    return {each["reason"] for each in kubectl.json("get", "events", namespace=namespace)["items"]}


def test_a_run_reaches_its_target_and_its_cost_is_in_status(driven: DrivenJob, kubectl: ClusterCommand) -> None:
    training, namespace = driven.start(), driven.key.namespace
    driven.reconcile()
    assert condition(driven.recurrence, "Running")["status"] == "True"
    driven.reach_target(training)
    status = driven.recurrence["status"]
    assert status["result"] == "Reached"
    assert status["workloadRef"]["kind"] == "Job"
    # 200 W for 2 epochs of 10 s each; half of it, and half of 300 W for 20 s.
    assert float(status["usage"]["gpuEnergyJoules"]) == 4000
    assert float(status["costJoules"]) == 5000
    of_job = driven.job["status"]
    assert (of_job["totals"]["reached"], of_job.get("active", [])) == (1, [])
    assert of_job["recentRecurrences"][0]["gpuEnergyJoules"] == "4000"
    records = driven.operator.store.observations.of_name(namespace, driven.key.name)
    assert [record.result for record in records] == ["Reached"]
    shown = kubectl("get", "rtj", driven.key.name, "--output=wide", namespace=namespace)
    assert shown.splitlines()[0].split("  ")[0] == "NAME"
    assert "0.001111 kWh" in shown
    assert "Reached" in kubectl("get", "trec", namespace=namespace)
    assert {"RecurrenceStarted", "RecurrenceReached"} <= reasons(kubectl, namespace)


def test_the_image_that_a_pod_ran_is_in_status_observation_and_power_profile(driven: DrivenJob) -> None:
    driven.begin()
    assert "imageDigest" not in driven.recurrence.get("status", {})
    training = driven.train()
    driven.reconcile()
    _, _, digest = image_id(training.pod["spec"]["containers"][0]["image"]).partition("@")
    assert driven.recurrence["status"]["imageDigest"] == digest
    training.report(1.0, 0.5, profile=tuple(LimitMeasurement(watts, 100.0, 1.0, 0.1) for watts in (200.0, 300.0)))
    training.report(2.0, 0.95, finished=True)
    driven.succeed(training)
    status = driven.recurrence["status"]
    assert (status["result"], status["imageDigest"]) == ("Reached", digest)
    store = driven.operator.store
    (record,) = store.observations.of_name(driven.key.namespace, driven.key.name)
    assert record.image_digest == digest
    (profile,) = store.profiles.of_job(record.job_uid)
    assert profile.key.image_digest == digest


def test_a_rank_that_is_killed_has_an_event_with_its_pod_and_node(driven: DrivenJob, kubectl: ClusterCommand) -> None:
    driven.begin(retries=0, template=of_ranks(3))
    found = driven.kubelet.pods_of_job(driven.name_of(), driven.key.namespace, count=3)
    pods = [driven.kubelet.run(pod) for pod in found]
    ranks = {int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]): pod for pod in pods}
    for rank, pod in ranks.items():
        sent = Report(
            process="p",
            sequence=1,
            epoch=1.0,
            metric=0.5,
            evaluations=1,
            rank=rank,
            ranks=3,
            failure="" if rank == 2 else "RuntimeError",
            consequence=True,
        )
        assert driven.training_of(pod).channel.send_last(sent, 60.0) is not None
    driven.kubelet.fail(ranks[2], exit_code=137)
    driven.after_end()
    name, node = ranks[2]["metadata"]["name"], ranks[2]["spec"]["nodeName"]
    text = f"rank 2 of 3 ended without a report; pod {name} of index 2 on node {node} failed first"
    assert condition(driven.recurrence, "RanksHealthy")["message"] == text
    events = kubectl.json("get", "events", namespace=driven.key.namespace)["items"]
    dead = {each["involvedObject"]["kind"]: each for each in events if each["reason"] == "RankDied"}
    assert dead.keys() == {"RecurringTrainingJob", "TrainingRecurrence"}
    assert {each["type"] for each in dead.values()} == {"Warning"}
    assert all(text in each["message"] for each in dead.values())


def test_the_pod_and_the_node_of_a_rank_that_hangs_are_known_by_its_token(driven: DrivenJob) -> None:
    objective = {"target": {"metric": "accuracy", "threshold": "0.9"}, "maxEpochs": 50}
    driven.begin(objective=objective, progressDeadlineSeconds=600, template=of_ranks(2))
    found = driven.kubelet.pods_of_job(driven.name_of(), driven.key.namespace, count=2)
    pods = [driven.kubelet.run(pod) for pod in found]
    driven.reconcile()
    pods.sort(key=lambda pod: str(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]))
    # The second pod has the first rank, as under torchrun's dynamic rendezvous.
    sent = Report(process="p", sequence=1, epoch=1.0, metric=0.5, evaluations=1, ranks=2)
    assert driven.training_of(pods[1]).channel.send_last(sent, 60.0) is not None
    driven.reconcile()
    snapshot = driven.operator.backend.snapshot(driven.key)
    (recurrence,), (workload,) = snapshot.recurrences, snapshot.workloads.values()
    where = f"pod {pods[1]['metadata']['name']} of index 1 on node {pods[1]['spec']['nodeName']}"
    assert f"rank 0 in {where} is silent longest" in hang_message(recurrence, workload)


def test_a_process_that_hangs_is_ended_at_its_deadline(
    driven: DrivenJob, clock: TestClock, kubectl: ClusterCommand
) -> None:
    training = driven.start(activeDeadlineSeconds=600, retries=0)
    training.report(3.0, 0.5)
    assert driven.reconcile() is not None
    clock.advance(601)
    driven.reconcile()
    status = driven.recurrence["status"]
    assert status["result"] == "DeadlineExceeded"
    assert "its last report was for epoch 3" in status["message"]
    assert kubectl.json("get", "jobs", namespace=driven.key.namespace)["items"] == []
    (bound,) = driven.learned
    assert (bound.outcome, bound.epochs) == (Outcome.STOPPED, 3)


def test_a_rejected_template_is_reported_and_starts_nothing_until_it_is_fixed(
    driven: DrivenJob, kubectl: ClusterCommand
) -> None:
    bad = {"restartPolicy": "Never", "containers": [{"name": "train"}, {"name": "train", "image": "b"}]}
    driven.begin(template={"spec": {"template": {"spec": bad}}})
    ready = condition(driven.job, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "TemplateRejected")
    assert "Duplicate value" in ready["message"]
    assert driven.recurrences == []
    assert "TemplateRejected" in reasons(kubectl, driven.key.namespace)
    driven.begin()
    assert condition(driven.job, "Ready")["status"] == "True"
    assert len(driven.recurrences) == 1


def test_kubectl_describes_a_recurrence_with_its_events_and_a_deleted_one_leaves_an_event(
    driven: DrivenJob, kubectl: ClusterCommand
) -> None:
    driven.reach_target(driven.start())
    namespace = driven.key.namespace
    described = kubectl("describe", "trec", driven.name_of(), namespace=namespace).partition("Events:")[2]
    assert "RecurrenceStarted" in described
    assert "RecurrenceReached" in described
    driven.begin(runRequest="second")
    second = driven.name_of(index=1, request="second")
    kubectl("delete", "trec", second, namespace=namespace)
    driven.operator.restart()
    driven.reconcile()
    described = kubectl("describe", "rtj", driven.key.name, namespace=namespace).partition("Events:")[2]
    assert "RecurrenceDeleted" in described
    assert f"{second} was deleted while it was active" in described


def test_an_ended_recurrence_leaves_one_event_whoever_deletes_it(driven: DrivenJob, kubectl: ClusterCommand) -> None:
    def deletions() -> list[str]:
        events = kubectl.json("get", "events", namespace=driven.key.namespace)["items"]
        return sorted(each["message"] for each in events if each["reason"] == "RecurrenceDeleted")

    names = []
    for index, request in enumerate(("first", "second", "third")):
        driven.begin(runRequest=request, successfulRunsHistoryLimit=2)
        names.append(driven.name_of(index=index, request=request))
        driven.reach_target(driven.train(names[-1]))
    by_limit = (
        f"recurrence 0 ({names[0]}) was deleted by spec.successfulRunsHistoryLimit; what was learned from it is kept"
    )
    assert deletions() == [by_limit]
    kubectl("delete", "trec", names[1], namespace=driven.key.namespace)
    driven.reconcile()
    driven.reconcile()
    driven.operator.restart()
    driven.reconcile()
    by_user = f"recurrence 1 ({names[1]}) was deleted, and not by a history limit; what was learned from it is kept"
    assert deletions() == [by_limit, f"{driven.key}: {by_user}"]
    # The watch of the recurrences reports first that the job and all that is its own are deleted.
    kubectl("delete", "rtj", driven.key.name, "--cascade=foreground", namespace=driven.key.namespace)
    operator = driven.operator
    (cached,) = operator.cache.recurrences.all()
    assert operator.cache.recurrences.remove(cached.key, cached.uid)
    assert reconcile(operator.backend, driven.key, operator.clock) is None
    assert len(deletions()) == 2


def test_an_object_of_the_same_name_that_wattloop_does_not_own_is_not_touched(
    driven: DrivenJob, kubectl: ClusterCommand
) -> None:
    driven.apply()
    name, namespace = driven.name_of(), driven.key.namespace
    pod = {"restartPolicy": "Never", "containers": [{"name": "own", "image": "own:1"}]}
    unowned = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"suspend": True, "template": {"spec": pod}},
    }
    kubectl.apply(unowned, namespace=namespace)
    before = kubectl.json("get", "job", name, namespace=namespace)
    driven.reconcile()
    assert driven.results == ["NameConflict"]
    assert "that Wattloop did not create" in driven.recurrence["status"]["message"]
    after = kubectl.json("get", "job", name, namespace=namespace)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"]
    assert "ownerReferences" not in after["metadata"]


def test_a_workload_that_a_user_deletes_is_not_started_again(driven: DrivenJob, kubectl: ClusterCommand) -> None:
    driven.start()
    driven.reconcile()
    kubectl("delete", "job", driven.name_of(), "--cascade=foreground", namespace=driven.key.namespace)
    driven.operator.restart()
    driven.reconcile()
    assert driven.results == ["Cancelled"]
    assert kubectl.json("get", "jobs", namespace=driven.key.namespace)["items"] == []
