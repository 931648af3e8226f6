"""Jobs that are nested deep or very large, from before the chart's policy, beside a victim's job."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from support.control_plane.commands import ClusterCommand
from support.control_plane.control_plane import ControlPlane
from support.control_plane.fixtures import MakeJob, Operators
from support.control_plane.job_manifest import job_manifest
from support.control_plane.memory_cgroup import MemoryCgroup
from support.control_plane.objects import EVENT
from support.control_plane.pod_runner import PodRunner
from support.control_plane.victims import assert_within_memory, assert_works, await_reached, peak_memory_bytes
from support.control_plane.waiting import Object, wait_until
from wattloop_operator.api.model import GROUP, VERSION
from wattloop_operator.api.template_checks import MAX_TEMPLATE_BYTES
from wattloop_operator.cluster.api import RECURRING_TRAINING_JOBS, ClusterApi
from wattloop_operator.cluster.api_transport import HttpTransport
from wattloop_operator.cluster.informer.informer import Resync
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.informer.watched_kinds import watched_kinds
from wattloop_operator.domain.names import JobKey

POLICY = "app.kubernetes.io/component=templates"
DEEP_LIST = "[" * 3000 + "]" * 3000
DEEP_OBJECT = '{"a":' * 9000 + "1" + "}" * 9000
# 59 MiB for Python's parser.
WIDE = "[" + "[]," * 433_000 + "1]"
# 80 MiB for a list of its strings.
STRINGS = "[" + '"",' * 433_000 + "1]"
LARGE_JOBS = 19
# Of the largest template that is admitted, all together 100 MB.
FULL_JOBS = 800
FULL = json.dumps("x" * (MAX_TEMPLATE_BYTES - 1000))
HOSTILE_TEXT = "\u202e\u0007[/a]{}"
Create = Callable[..., None]


@pytest.fixture
def hostile(
    admin: client.ApiClient, control_plane: ControlPlane, kubectl: ClusterCommand, release: object, namespace: str
) -> Iterator[Create]:
    """Creates a job with an owner and a text of JSON in its pod's spec, in another namespace, without the policy.

    Further names are those of copies.
    """
    other = f"{namespace}-hostile"
    owner = kubectl.json("create", "namespace", other)
    kind = "validatingadmissionpolicybinding"
    (binding,) = kubectl.json("get", kind, f"--selector={POLICY}")["items"]
    kubectl("delete", kind, binding["metadata"]["name"])
    path = f"/apis/wattloop.dev/v1alpha1/namespaces/{other}/recurringtrainingjobs"
    created: list[str] = []

    def create(name: str, value: str, *copies: str) -> None:
        manifest = job_manifest(name)
        manifest["metadata"]["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Namespace", "name": other, "uid": owner["metadata"]["uid"]}
        ]
        manifest["spec"]["template"]["spec"]["template"]["spec"]["x"] = "VALUE"
        made = _until_created(admin, path, json.dumps(manifest).replace('"VALUE"', value).encode())
        if copies:
            control_plane.copy_object("wattloop.dev/recurringtrainingjobs", json.loads(made), copies)
        created.extend((name, *copies))

    try:
        yield create
    finally:
        # First, and whatever follows: the next tests need it.
        metadata = {name: binding["metadata"][name] for name in ("name", "labels", "annotations")}
        kubectl.apply({**binding, "metadata": metadata})
    removed = control_plane.remove_objects("wattloop.dev/recurringtrainingjobs", other)
    kubectl("delete", "namespace", other, "--wait=false")
    assert removed == len(created)


def _until_created(admin: client.ApiClient, path: str, body: bytes) -> bytes:
    pool, host = admin.rest_client.pool_manager, admin.configuration.host
    while True:
        answer = pool.request("POST", host + path, body=body, headers={"Content-Type": "application/json"})
        if answer.status == 201:
            return bytes(answer.data)
        # The server enforces a binding for a moment after its deletion.
        assert answer.status == 422, answer.data[:1000]
        assert b"ValidatingAdmissionPolicy" in answer.data, answer.data[:1000]


def refusals(cluster: DynamicClient, namespace: str, count: int) -> dict[str, str]:
    """The Events of this many refused jobs, by job."""

    def found(events: list[Object]) -> dict[str, str] | None:
        notes = {
            each["involvedObject"]["name"]: str(each["message"])
            for each in events
            if each.get("reason") == "TemplateRejected"
        }
        return notes if len(notes) == count else None

    result: dict[str, str] = wait_until(cluster, EVENT, found, f"{count} Events of refused jobs", namespace=namespace)
    return result


@pytest.mark.timeout(600)
def test_jobs_that_are_nested_deep_end_no_watch_of_this_operator_or_the_next(
    container: MemoryCgroup,
    operators: Operators,
    make_job: MakeJob,
    hostile: Create,
    pod_runner: PodRunner,
    cluster: DynamicClient,
) -> None:
    start = operators(cgroup=container)
    first = start()
    key = make_job()
    await_reached(cluster, key, 1)
    hostile("deep-list", DEEP_LIST)
    hostile("deep-object", DEEP_OBJECT)
    notes = refusals(cluster, f"{key.namespace}-hostile", 2)
    assert all("nested more than 200 levels deep; expected a template of at most" in note for note in notes.values())
    make_job(runRequest="second")
    await_reached(cluster, key, 2)
    assert_works(first)
    first.stop()
    second = start()
    make_job(runRequest="third")
    await_reached(cluster, key, 3)
    assert_works(second)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_large_jobs_leave_the_operator_within_the_memory_of_the_chart(
    container: MemoryCgroup,
    operators: Operators,
    make_job: MakeJob,
    hostile: Create,
    pod_runner: PodRunner,
    cluster: DynamicClient,
) -> None:
    start = operators(cgroup=container)
    first = start()
    key = make_job()
    names = [f"large-{number:02}" for number in range(LARGE_JOBS)]
    for value, copies in ((WIDE, names[::2]), (STRINGS, names[1::2])):
        hostile(copies[0], value, *copies[1:])
    refusals(cluster, f"{key.namespace}-hostile", LARGE_JOBS)
    assert_within_memory(first, container, cluster, key, 1)
    first.stop()
    second = start()
    make_job(runRequest="second")
    assert_within_memory(second, container, cluster, key, 2)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_of_the_largest_jobs_that_are_listed_the_operator_holds_those_that_its_cache_accepts(
    container: MemoryCgroup,
    operators: Operators,
    make_job: MakeJob,
    hostile: Create,
    pod_runner: PodRunner,
    cluster: DynamicClient,
) -> None:
    hostile("full-000", FULL, *(f"full-{number:03}" for number in range(1, FULL_JOBS)))
    operator = operators(cgroup=container)()
    key = make_job()
    await_reached(cluster, key, 1)
    assert_works(operator)
    # Without a job it takes 130 MB.
    assert peak_memory_bytes(operator) < 250_000_000
    # It would handle the end of each of them.
    operator.stop()


def test_a_deep_job_that_its_watch_has_missed_ends_no_repair(
    transport: HttpTransport, make_job: MakeJob, hostile: Create
) -> None:
    key = make_job("plain")
    deep = JobKey(f"{key.namespace}-hostile", "deep")
    hostile(deep.name, DEEP_OBJECT)
    cache = ObjectCache()
    (kind,) = [each for each in watched_kinds(cache) if each.resource == RECURRING_TRAINING_JOBS]
    namespaces = (deep.namespace, key.namespace)
    assert Resync(ClusterApi(transport), kind, lambda _: True, namespaces).run() == {deep, key}
    assert cache.jobs.get((key.namespace, key.name)) is not None
    assert "it is nested more than 200 levels deep" in cache.jobs.refused((deep.namespace, deep.name)).problem
    assert Resync(ClusterApi(transport), kind, lambda _: True, namespaces).run() == set(), "it is known"


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        ("spec", {"containers": [{"volumeMounts": [5]}]}, "containers[0].volumeMounts[0]: found 5, expected an object"),
        pytest.param(
            "metadata",
            {"annotations": {"a": 5}},
            "field ObjectMeta.spec.template.metadata.annotations of type string",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            "metadata",
            {"annotations": [HOSTILE_TEXT]},
            "metadata.annotations: found a list, expected an object",
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["a volume mount", "an annotation", "a list of annotations"],
)
def test_a_wrong_type_in_a_template_is_named_by_the_condition(
    place: str,
    value: dict[str, Any],
    problem: str,
    admin: client.ApiClient,
    operators: Operators,
    make_job: MakeJob,
    namespace: str,
    pod_runner: PodRunner,
    cluster: DynamicClient,
) -> None:
    operator = operators()()
    hostile = job_manifest("hostile")
    # As many bytes of annotations as the API server admits.
    hostile["metadata"]["annotations"] = {"a": HOSTILE_TEXT * 20_000, "wattloop.dev/simulated-load": HOSTILE_TEXT}
    template = hostile["spec"]["template"]["spec"]["template"]
    if place == "spec":
        template["spec"]["containers"][0] |= value["containers"][0]
    else:
        template[place] = value
    # As kubectl create does: a server-side apply would refuse it.
    jobs = RECURRING_TRAINING_JOBS
    client.CustomObjectsApi(admin).create_namespaced_custom_object(GROUP, VERSION, namespace, jobs.plural, hostile)
    wait_until(
        cluster,
        (f"{GROUP}/{VERSION}", jobs.kind),
        lambda jobs: any(problem in str(job.get("status", {}).get("conditions")) for job in jobs),
        f"a condition that says: {problem}",
        namespace=namespace,
    )
    await_reached(cluster, make_job(), 1)
    assert_works(operator)
