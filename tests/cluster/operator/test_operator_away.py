"""A training ends while the operator is away: what it left in its pod is its outcome, on a real API server."""

from collections.abc import Callable

from kubernetes import client
from kubernetes.dynamic import DynamicClient

from support.control_plane.driven_job import DrivenJob, await_job_end, first_of
from support.control_plane.fixtures import Ended, MakeJob, Operators, Train
from support.control_plane.kubelet import Kubelet
from support.control_plane.objects import POD, TRAINING_RECURRENCE
from support.control_plane.stored_attempts import progress_of
from support.control_plane.training import Training
from support.control_plane.waiting import Object, wait_until

HOUR = 3600.0


def test_an_operator_that_starts_again_reads_from_the_pod_what_the_training_could_not_deliver(
    operators: Operators, make_job: MakeJob, train: Train, ended: Ended, kubelet: Kubelet, cluster: DynamicClient
) -> None:
    start = operators()
    operator = start()
    key = make_job()
    training = train(key, first_of(key))
    assert training.environment.termination_message_path == "/dev/termination-log"
    assert training.report(1.0, 0.5) is not None
    operator.kill()
    train_on_alone(training)
    kubelet.succeed(training.pod, message=training.termination_message.read_text())
    ended(key, first_of(key))
    start()

    def with_result(found: list[Object]) -> Object | None:
        return next((each["status"] for each in found if "result" in each.get("status", {})), None)

    status = wait_until(
        cluster, TRAINING_RECURRENCE, with_result, "the result of the training", namespace=key.namespace
    )
    assert (status["result"], status["epochs"], status["usage"]["gpuEnergyJoules"]) == ("Reached", "9", "18000")


def train_on_alone(training: Training) -> None:
    training.timeout_seconds = 0.0
    assert training.report(8.0, 0.8) is None
    assert training.report(9.0, 0.95, finished=True) is None


def comes_back(driven: DrivenJob, training: Training, end: Callable[[], object]) -> str | None:
    """The result of a training that ends in the hour in which the operator is away."""
    training.channel = Training(training.pod, training.token_of_pod, training.folder, "http://127.0.0.1:1/v1").channel
    train_on_alone(training)
    end()
    driven.operator.clock.advance(HOUR)
    driven.operator.restart()
    driven.after_end()
    return driven.results[0]


def test_without_the_pod_the_training_is_disrupted_and_names_the_outage(
    driven: DrivenJob, cluster: DynamicClient, core: client.CoreV1Api
) -> None:
    training = driven.start(retries=0)
    assert training.report(1.0, 0.5) is not None

    def ends_and_is_deleted() -> None:
        metadata = training.pod["metadata"]
        driven.kubelet.succeed(training.pod, message=training.termination_message.read_text())
        await_job_end(cluster, driven.key, driven.name_of())
        core.delete_namespaced_pod(metadata["name"], metadata["namespace"], grace_period_seconds=0)
        wait_until(cluster, POD, lambda pods: not pods, "no pod to be left", namespace=driven.key.namespace)

    assert comes_back(driven, training, ends_and_is_deleted) == "Disrupted"
    assert "while the operator or its database was away" in driven.recurrence["status"]["message"]
    assert progress_of(driven.operator.store, driven.recurrence).epoch == 1
