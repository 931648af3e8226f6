"""Hostile reports on a real API server: a pod fills its status, or reports for another's run."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from support.chart.rights import await_right_to_create
from support.control_plane.commands import ClusterCommand
from support.control_plane.driven_job import first_of
from support.control_plane.fixtures import Ended, MakeJob, RecurrencesOf, Train
from support.control_plane.in_process_operator import InProcessOperator
from support.control_plane.kubelet import Kubelet
from support.control_plane.objects import POD
from support.control_plane.stored_attempts import progress_of
from support.control_plane.training import AUDIENCE, TokenOfPod, Training
from support.control_plane.waiting import Object, wait_until
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.progress import Progress
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.store import Store

# The longest forms, the worst first: the attack uses the first one that is accepted. In JSON each
# "<" has six bytes, and seven in what the API server keeps of an object's fields.
UUIDS: tuple[Callable[[int], str], ...] = (
    lambda number: f"{number:<>96}",
    lambda number: f"MIG-GPU-{number:036x}/127/127",
)
PROFILE = [
    {
        "power_limit_watts": 9000 + watts,
        "energy_joules": 99999999.9999,
        "time_seconds": 99999.9999999,
        "epochs": 0.1234567,
    }
    for watts in range(64)
]
# In decreasing steps, so that the last rejected size is as small as possible.
STEPS = (*(16 * [64]), *(8 * [8]), *(8 * [1]))
MAX_OBJECT_BYTES = 128 * 1024


def post(reporting: HttpService, key: JobKey, token: str, **changes: Any) -> httpx.Response:
    url = f"{reporting.url}/v1/namespaces/{key.namespace}/recurrences/{first_of(key)}/progress"
    report = {"process": "p", "sequence": 1, "epoch": 1.0, "metric": 0.5, "evaluations": 1} | changes
    return httpx.post(url, json=report, headers={"Authorization": f"Bearer {token}"}, timeout=60.0)


def gpus(uuid: Callable[[int], str], first: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "uuid": uuid(number),
            "start_energy_millijoules": 100_000_000_000_000,
            "energy_millijoules": 200_000_000_000_000,
            "start_time_seconds": 9_999_999_998.44,
            "time_seconds": 9_999_999_999.99,
        }
        for number in range(first, first + count)
    ]


def test_a_status_filled_by_reports_leaves_room_for_the_outcome(
    operator: InProcessOperator,
    make_job: MakeJob,
    train: Train,
    ended: Ended,
    kubelet: Kubelet,
    kubectl: ClusterCommand,
    reporting: HttpService,
    token_of_pod: TokenOfPod,
    recurrences_of: RecurrencesOf,
) -> None:
    key = make_job()
    operator.reconcile(key)
    training = train(key, first_of(key))
    operator.reconcile(key)
    token = token_of_pod(training.pod, AUDIENCE)
    uuid = next(each for each in UUIDS if post(reporting, key, token, gpus=gpus(each, 0, 1)).status_code == 200)
    reported = 1
    for sequence, count in enumerate(STEPS, start=2):
        more = {"gpu_product": "<" * 128, "power_limit_refusal": "<" * 512, "profile": PROFILE}
        answer = post(reporting, key, token, sequence=sequence, gpus=gpus(uuid, reported, count), **more)
        reported += count if answer.status_code == 200 else 0
    assert reported > 900
    # The termination message is part of the failure message, which the outcome contains three
    # times.
    kubelet.fail(training.pod, message="<" * 4096)
    ended(key, first_of(key))
    operator.reconcile(key)
    recurrence = recurrences_of(key)[0]
    assert recurrence["status"]["result"] == "Crashed"
    assert 900 < len(progress_of(operator.store, recurrence).gpus) <= 1024
    path = f"/apis/wattloop.dev/v1alpha1/namespaces/{key.namespace}/trainingrecurrences/{first_of(key)}"
    size_bytes = len(kubectl("get", "--raw", path).encode())
    assert size_bytes < MAX_OBJECT_BYTES, size_bytes


@pytest.fixture
def intruder(admin: client.ApiClient, namespace: str) -> client.CoreV1Api:
    """A service account of the namespace that may only create pods and Jobs."""
    core, rbac = client.CoreV1Api(admin), client.RbacAuthorizationV1Api(admin)
    name = "intruder"
    core.create_namespaced_service_account(namespace, client.V1ServiceAccount(metadata=client.V1ObjectMeta(name=name)))
    rules = [
        client.V1PolicyRule(api_groups=[""], resources=["pods"], verbs=["create"]),
        client.V1PolicyRule(api_groups=["batch"], resources=["jobs"], verbs=["create"]),
    ]
    rbac.create_namespaced_role(namespace, client.V1Role(metadata=client.V1ObjectMeta(name=name), rules=rules))
    rbac.create_namespaced_role_binding(
        namespace,
        client.V1RoleBinding(
            metadata=client.V1ObjectMeta(name=name),
            role_ref=client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name=name),
            subjects=[client.RbacV1Subject(kind="ServiceAccount", name=name, namespace=namespace)],
        ),
    )
    await_right_to_create(admin, namespace, name, "pods", "jobs.batch")
    acting = client.ApiClient(admin.configuration)
    acting.set_default_header("Impersonate-User", f"system:serviceaccount:{namespace}:{name}")
    return client.CoreV1Api(acting)


@pytest.fixture
def victim(operator: InProcessOperator, make_job: MakeJob, train: Train) -> tuple[JobKey, Training]:
    """A recurrence with a running pod."""
    key = make_job()
    operator.reconcile(key)
    training = train(key, first_of(key))
    operator.reconcile(key)
    return key, training


def pod(name: str, owner: dict[str, Any], labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels or {}, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "x", "image": "example.invalid/x:1"}]},
    }


def owner_of(training: Training) -> dict[str, Any]:
    (owner,) = training.pod["metadata"]["ownerReferences"]
    return {name: owner[name] for name in ("apiVersion", "kind", "name", "uid", "controller")}


def as_object(core: client.CoreV1Api, namespace: str, name: str) -> Object:
    found: Object = core.api_client.sanitize_for_serialization(core.read_namespaced_pod(name, namespace))
    return found


def test_a_pod_that_claims_anothers_job_as_its_controller_is_rejected(
    victim: tuple[JobKey, Training],
    intruder: client.CoreV1Api,
    core: client.CoreV1Api,
    reporting: HttpService,
    token_of_pod: TokenOfPod,
    recurrences_of: RecurrencesOf,
    store: Store,
) -> None:
    key, training = victim
    forged = pod("forged", owner_of(training))
    intruder.create_namespaced_pod(key.namespace, forged)
    token = token_of_pod(as_object(core, key.namespace, "forged"), AUDIENCE)
    answer = post(reporting, key, token, metric=0.99)
    assert answer.status_code == 403, answer.text
    assert progress_of(store, recurrences_of(key)[0]) == Progress()
    assert post(reporting, key, token_of_pod(training.pod, AUDIENCE)).status_code == 200


def test_a_job_that_claims_anothers_recurrence_as_its_controller_is_not_its_workload(
    victim: tuple[JobKey, Training],
    intruder: client.CoreV1Api,
    kubelet: Kubelet,
    reporting: HttpService,
    token_of_pod: TokenOfPod,
    recurrences_of: RecurrencesOf,
) -> None:
    key, _ = victim
    recurrence = recurrences_of(key)[0]
    owner = {
        "apiVersion": recurrence["apiVersion"],
        "kind": recurrence["kind"],
        "name": recurrence["metadata"]["name"],
        "uid": recurrence["metadata"]["uid"],
        "controller": True,
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "x", "image": "example.invalid/x:1"}]}}
    body = {"metadata": {"name": "forged", "ownerReferences": [owner]}, "spec": {"template": template}}
    client.BatchV1Api(intruder.api_client).create_namespaced_job(key.namespace, body)
    (forged,) = kubelet.pods_of_job("forged", key.namespace)
    answer = post(reporting, key, token_of_pod(forged, AUDIENCE), metric=0.99)
    assert answer.status_code == 403, answer.text


def test_a_pod_that_looks_like_one_of_the_job_is_deleted_by_the_job_controller(
    victim: tuple[JobKey, Training], intruder: client.CoreV1Api, cluster: DynamicClient
) -> None:
    key, training = victim
    labels = {name: value for name, value in training.pod["metadata"]["labels"].items() if name.startswith("batch.")}
    name = f"{first_of(key)}-forged"
    intruder.create_namespaced_pod(key.namespace, pod(name, owner_of(training), labels))

    def names(pods: list[Object]) -> bool:
        remaining = [each["metadata"]["name"] for each in pods if "deletionTimestamp" not in each["metadata"]]
        return training.pod["metadata"]["name"] in remaining and name not in remaining

    wait_until(
        cluster,
        POD,
        names,
        "the Job controller to delete the forged pod",
        namespace=key.namespace,
        label_selector=f"batch.kubernetes.io/job-name={first_of(key)}",
    )
