"""Authorization of reports, on a real API server with real tokens."""

import itertools
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from kubernetes import client

from support.backends.curved_runs import curved_records, metric_after
from support.control_plane.driven_job import DrivenJob, first_of
from support.control_plane.fixtures import MakeJob, RecurrencesOf, Train
from support.control_plane.in_process_operator import InProcessOperator
from support.control_plane.stored_attempts import cluster_progress, progress_of
from support.control_plane.tokens import service_account_token
from support.control_plane.training import AUDIENCE, TokenOfPod, Training, environment_of
from wattloop import Run
from wattloop.commands.settings import Address
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import HttpTransport
from wattloop_operator.cluster.auth.authorizers import ClusterAuthorizer
from wattloop_operator.cluster.auth.token_review import TokenReviews
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.progress import Progress
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.reconcile.attempt.early_stop import review_cost_limit
from wattloop_operator.reporting.app import create_app
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store import Store


def post(reporting: HttpService, key: JobKey, token: str) -> httpx.Response:
    url = f"{reporting.url}/v1/namespaces/{key.namespace}/recurrences/{first_of(key)}/progress"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.post(
        url,
        json={"process": "p", "sequence": 1, "epoch": 1.0, "metric": 0.5, "evaluations": 1},
        headers=headers,
        timeout=60.0,
    )


@pytest.fixture
def two_jobs(operator: InProcessOperator, make_job: MakeJob, train: Train) -> tuple[JobKey, Training, JobKey, Training]:
    """Two jobs of one namespace, each with its pod."""
    first, second = make_job("first"), make_job("second")
    operator.reconcile(first)
    operator.reconcile(second)
    return first, train(first, first_of(first)), second, train(second, first_of(second))


def test_a_pod_reports_only_for_its_own_recurrence(
    two_jobs: tuple[JobKey, Training, JobKey, Training],
    reporting: HttpService,
    token_of_pod: TokenOfPod,
    recurrences_of: RecurrencesOf,
    store: Store,
) -> None:
    first, training, second, _ = two_jobs
    token = token_of_pod(training.pod, AUDIENCE)
    assert post(reporting, first, token).status_code == 200
    rejected = post(reporting, second, token)
    assert rejected.status_code == 403
    assert f"does not run {second.namespace}/{first_of(second)}" in rejected.text
    assert progress_of(store, recurrences_of(first)[0]).epoch == 1
    assert progress_of(store, recurrences_of(second)[0]) == Progress()


def test_a_token_of_another_audience_or_of_no_pod_is_unknown(
    two_jobs: tuple[JobKey, Training, JobKey, Training],
    reporting: HttpService,
    token_of_pod: TokenOfPod,
    core: client.CoreV1Api,
) -> None:
    key, training, _, _ = two_jobs
    default = service_account_token(core, key.namespace, "default", audiences=[AUDIENCE])
    tokens = ["", "forged", token_of_pod(training.pod, "someone.else"), default]
    assert [post(reporting, key, token).status_code for token in tokens] == [401, 401, 401, 401]


def test_a_pod_that_only_claims_to_belong_to_a_recurrence_is_rejected(
    two_jobs: tuple[JobKey, Training, JobKey, Training],
    reporting: HttpService,
    token_of_pod: TokenOfPod,
    core: client.CoreV1Api,
) -> None:
    key, training, _, _ = two_jobs
    labels = dict(training.pod["metadata"]["labels"])
    labels.pop("batch.kubernetes.io/controller-uid", None)
    labels.pop("controller-uid", None)
    spec = client.V1PodSpec(containers=[client.V1Container(name="x", image="x:1")])
    body = client.V1Pod(metadata=client.V1ObjectMeta(name="impostor", labels=labels), spec=spec)
    core.create_namespaced_pod(key.namespace, body)
    pod = core.api_client.sanitize_for_serialization(core.read_namespaced_pod("impostor", key.namespace))
    assert post(reporting, key, token_of_pod(pod, AUDIENCE)).status_code == 403


def test_a_missing_recurrence_belongs_to_no_pod(
    two_jobs: tuple[JobKey, Training, JobKey, Training], reporting: HttpService, token_of_pod: TokenOfPod
) -> None:
    key, training, _, _ = two_jobs
    url = f"{reporting.url}/v1/namespaces/{key.namespace}/recurrences/none/progress"
    headers = {"Authorization": f"Bearer {token_of_pod(training.pod, AUDIENCE)}"}
    assert (
        httpx.post(url, json={"process": "p", "sequence": 1, "epoch": 1.0}, headers=headers, timeout=60.0).status_code
        == 403
    )


def test_a_script_with_the_client_reports_from_its_pod(
    driven: DrivenJob, token_of_pod: TokenOfPod, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pod, token = driven.start().pod, tmp_path / "token"
    token.write_text(token_of_pod(pod, AUDIENCE))
    environment = environment_of(pod) | {"WATTLOOP_TOKEN_FILE": str(token)}
    with caplog.at_level(logging.WARNING), Run(environment=environment) as run:
        assert run.batch_size == 64
        for epoch in run.epochs():
            run.report(metric=(0.7, 0.8, 0.9)[epoch])
    progress = progress_of(driven.operator.store, driven.recurrence)
    assert (progress.epoch, progress.reached, progress.finished) == (3, True, True)
    assert "was not delivered" not in caplog.text


@pytest.fixture
def reviewing(transport: HttpTransport, operator: InProcessOperator) -> Iterator[HttpService]:
    """The reporting API of a leading operator, whose policy reviews attempts."""
    api = ClusterApi(transport)

    def review(recurrence: TrainingRecurrence, progress: Progress) -> Progress:
        key = JobKey(recurrence.metadata.namespace, recurrence.spec.job_ref.name)
        return review_cost_limit(lambda: operator.backend.snapshot(key), recurrence, progress)

    authorizer = ClusterAuthorizer(api, TokenReviews(api, time.monotonic), time.monotonic)
    # No limit of the rate delays a report or a review.
    seconds = itertools.count(1.0)
    service = ReportService(
        cluster_progress(api, operator.store, operator.clock), authorizer, review, clock=lambda: next(seconds)
    )
    served = HttpService("reporting API with reviews", create_app(service), Address("127.0.0.1", 0))
    served.start()
    yield served
    served.stop()


def test_a_trial_is_stopped_by_its_curve_which_the_store_keeps(
    driven: DrivenJob, reviewing: HttpService, token_of_pod: TokenOfPod, tmp_path: Path
) -> None:
    key, store = driven.key, driven.operator.store
    # Of all three candidates one seed in twenty tries 64 again.
    driven.apply(batchSize={"default": 64, "candidates": [64, 128]})
    for record in curved_records(driven.job["metadata"]["uid"], key.namespace, key.name):
        store.observations.record(record)
    driven.reconcile()
    recurrence = driven.recurrence
    assert (recurrence["spec"]["batchSize"], recurrence["spec"]["decision"]["kind"]) == (128, "Trial")
    name = recurrence["metadata"]["name"]
    pod = driven.train(name).pod
    driven.reconcile()
    url = f"{reviewing.url}/v1/namespaces/{key.namespace}/recurrences/{name}"
    training = Training(pod, token_of_pod, tmp_path, url)
    for epoch in range(1, 30):
        answer = training.report(float(epoch), metric_after(epoch, 40))
        if answer.stop:
            break
    # Without its curve it would have cost more than the cheapest batch size, which takes 20 epochs.
    assert 1 < epoch < 20
    progress = progress_of(store, driven.recurrences[0])
    assert (progress.stop_requested, progress.reviewed_epoch) == (True, epoch)
    driven.succeed(training)
    assert driven.recurrences[0]["status"]["result"] == "Stopped"
    stored = store.observations.of_name(key.namespace, key.name)[-1]
    assert stored.curve.metrics == tuple(metric_after(each, 40) for each in range(1, epoch + 1))
    curve = [tuple(map(float, point)) for point in driven.recurrences[0]["status"]["progress"]["curve"]]
    assert curve == list(zip(stored.curve.epochs, stored.curve.metrics, strict=True))
