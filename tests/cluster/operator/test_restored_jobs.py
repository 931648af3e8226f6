"""A job that is restored from a backup, under a new UID, goes on with its history and does nothing twice."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.dynamic import DynamicClient

from support.control_plane.commands import ClusterCommand
from support.control_plane.driven_job import DrivenJob
from support.control_plane.job_manifest import job_manifest
from support.control_plane.waiting import Object, wait_until
from support.databases.postgresql_server import PostgreSqlMissingError, postgresql_programs, running_postgresql
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.domain.job_identity import HISTORY_ANNOTATION
from wattloop_operator.domain.names import JobKey
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.store import Store, open_store

RUNS = ("first", "second", "third", "fourth")
OWN_KINDS = "rtj,trec"
KEPT_METADATA = ("name", "namespace", "labels", "annotations")
ROOT = Path(__file__).parents[3]
Shell = Callable[[str], None]


def copy_of_sqlite(source: str, target: Path) -> str:
    """Another file with the rows of a database."""
    with contextlib.closing(sqlite3.connect(source)) as database:
        target.write_bytes(database.serialize())
    return str(target)


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """The URL of an empty database, and a function that copies it into a new one as an administrator does."""
    if getattr(request, "param", "SQLite") == "SQLite":
        url = str(tmp_path / "first.db")
        yield url, lambda: copy_of_sqlite(url, tmp_path / "second.db")
        return
    try:
        programs = postgresql_programs()
    except PostgreSqlMissingError as error:
        pytest.skip(f"{error}; nothing was restored on PostgreSQL")
    folder = Path(programs.postgres).parent
    with running_postgresql(programs) as server:

        def copy() -> str:
            other = server.new_database()
            dump = subprocess.run([folder / "pg_dump", "--format=custom", url], check=True, capture_output=True)
            subprocess.run([folder / "pg_restore", f"--dbname={other}"], check=True, input=dump.stdout)
            return other

        url = server.new_database()
        yield url, copy


@pytest.fixture
def store(database: tuple[str, Callable[[], str]]) -> Iterator[Store]:
    """The store of the operator and of the reporting API before the loss."""
    with open_store(database[0]) as opened:
        yield opened


def run_all(driven: DrivenJob, **spec: Any) -> None:
    """Run the requests one after another; the objects of the latest two stay."""
    for index, request in enumerate(RUNS):
        driven.begin(runRequest=request, successfulRunsHistoryLimit=2, **spec)
        driven.reach_target(driven.train(driven.name_of(index=index, request=request)))


def backup(kubectl: ClusterCommand, namespace: str) -> list[Object]:
    """Wattloop's objects in a namespace without what a new object of the same name has of its own."""
    items = kubectl.json("get", OWN_KINDS, namespace=namespace)["items"]
    return [each | {"metadata": {name: each["metadata"].get(name) for name in KEPT_METADATA}} for each in items]


def lose_objects(kubectl: ClusterCommand, cluster: DynamicClient, namespace: str) -> None:
    """Delete the jobs of a namespace, and wait until all that they own is gone."""
    kubectl("delete", "rtj", "--all", "--cascade=foreground", namespace=namespace)
    for api_version, kind in (("wattloop.dev/v1alpha1", "TrainingRecurrence"), ("batch/v1", "Job")):
        wait_until(
            cluster,
            (api_version, kind),
            lambda found: not found,
            f"the objects of kind {kind} to be deleted",
            namespace=namespace,
        )


def restore(kubectl: ClusterCommand, objects: list[Object]) -> None:
    """Create objects again as Velero does, without their statuses and owners."""
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl("apply", "--server-side", "--filename=-", stdin=listed)


def page_command(begin: str) -> str:
    """The only command of docs/day-two.md that begins so."""
    text = (ROOT / "docs" / "day-two.md").read_text(encoding="utf-8")
    (found,) = (line.strip() for line in text.splitlines() if line.startswith(f"    {begin}"))
    return found


@pytest.fixture
def shell(kubectl: ClusterCommand, tmp_path: Path) -> Shell:
    """Runs a command of the page."""

    def run(command: str) -> None:
        path = f"{kubectl.program.parent}:{os.environ['PATH']}"
        environment = {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(kubectl.kubeconfig)}
        subprocess.run(["bash", "-euo", "pipefail", "-c", command], check=True, cwd=tmp_path, env=environment)

    return run


def next_decision(driven: DrivenJob, index: int) -> dict[str, Any]:
    """What is decided for the recurrence with this index."""
    snapshot = driven.operator.backend.snapshot(driven.key)
    assert snapshot is not None
    return decide(snapshot, Attempt(index, 0, "next", driven.operator.clock())).spec.model_dump(
        exclude={"scheduled_time"}
    )


def condition_reasons(driven: DrivenJob) -> dict[str, str]:
    return {each["type"]: each["reason"] for each in driven.job["status"]["conditions"]}


def assert_started_nothing(driven: DrivenJob, kubectl: ClusterCommand) -> None:
    for _ in range(2):
        driven.operator.restart()
        driven.reconcile()
    assert kubectl.json("get", "jobs", namespace=driven.key.namespace)["items"] == []
    assert driven.job["status"]["runRequest"]["value"] == RUNS[-1]


@pytest.mark.postgres
@pytest.mark.parametrize("statuses", exhaustive_after([False, True]), ids=["as-velero-does", "with-statuses"])
@pytest.mark.parametrize("database", ["SQLite", "PostgreSQL"], indirect=True)
def test_a_restored_job_keeps_its_history_and_its_recurrences_and_starts_nothing_again(
    driven: DrivenJob,
    kubectl: ClusterCommand,
    cluster: DynamicClient,
    database: tuple[str, Callable[[], str]],
    shell: Shell,
    statuses: bool,
) -> None:
    if statuses and shutil.which("jq") is None:
        pytest.skip("no jq, by which the page removes what an object has of its own")

    def keep() -> list[Object]:
        shell(page_command("kubectl get rtj,trec,").replace("--all-namespaces", f"--namespace={driven.key.namespace}"))
        return backup(kubectl, driven.key.namespace)

    def bring_back(objects: list[Object]) -> None:
        if not statuses:
            restore(kubectl, objects)
            return
        for begin in ("jq ", "kubectl apply --server-side --filename", "kubectl apply --server-side --subresource"):
            shell(page_command(begin))

    run_all(driven)
    decided, before = next_decision(driven, len(RUNS)), driven.job
    recurrences = {each["metadata"]["name"]: each for each in driven.recurrences}
    objects = keep()
    _, copy = database
    restored_url = copy()
    lose_objects(kubectl, cluster, driven.key.namespace)
    with open_store(restored_url) as store:
        driven.operator.restart(store)
        bring_back(objects)
        assert_started_nothing(driven, kubectl)
        job = driven.job
        assert job["metadata"]["uid"] != before["metadata"]["uid"]
        assert job["metadata"]["annotations"] == before["metadata"]["annotations"]
        assert next_decision(driven, len(RUNS)) == decided
        assert job["status"]["totals"] == before["status"]["totals"]
        assert job["status"]["runRequest"] == before["status"]["runRequest"]
        assert "HistoryLost" not in condition_reasons(driven)
        kept = {each["metadata"]["name"]: each for each in driven.recurrences}
        assert kept.keys() == recurrences.keys()
        for name, each in kept.items():
            # The garbage collector keeps what an existing object owns.
            assert [owner["uid"] for owner in each["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
            for field in ("result", "costJoules", "epochs", "energy", "time", "metric"):
                assert each["status"][field] == recurrences[name]["status"][field], field
        driven.begin(runRequest="fifth", successfulRunsHistoryLimit=2)
        started = driven.recurrences[-1]
        assert started["spec"]["index"] == len(RUNS)
        assert started["spec"]["jobRef"]["uid"] == before["metadata"]["uid"]
        # A second restore, from a backup of the first one, in which a training ran.
        objects = keep()
        lose_objects(kubectl, cluster, driven.key.namespace)
        bring_back(objects)
        driven.operator.restart()
        driven.reconcile()
        assert kubectl.json("get", "jobs", namespace=driven.key.namespace)["items"] == []
        assert driven.job["status"]["totals"]["reached"] == len(RUNS)
        assert driven.job["status"]["totals"]["recurrences"] == len(RUNS) + 1
        assert driven.job["status"]["runRequest"]["value"] == "fifth"
        expected = {"ended": "fifth", "result": "Cancelled", "failed": "fifth"} if statuses else {"ended": "fifth"}
        assert {**driven.job["status"]["runRequest"], **expected} == driven.job["status"]["runRequest"]


def test_without_its_database_a_restored_job_starts_nothing_that_had_been_done_and_says_what_is_lost(
    driven: DrivenJob, kubectl: ClusterCommand, cluster: DynamicClient, tmp_path: Path
) -> None:
    run_all(driven)
    objects = backup(kubectl, driven.key.namespace)
    lose_objects(kubectl, cluster, driven.key.namespace)
    with open_store(tmp_path / "new.db") as empty:
        driven.operator.restart(empty)
        # Tools restore jobs before recurrences, and the operator may run meanwhile.
        jobs = [each for each in objects if each["kind"] == "RecurringTrainingJob"]
        restore(kubectl, jobs)
        driven.reconcile()
        assert condition_reasons(driven)["HistoryLost"] == "NotRestored"
        restore(kubectl, [each for each in objects if each not in jobs])
        assert_started_nothing(driven, kubectl)
        assert "result" not in driven.job["status"]["runRequest"], "nobody knows it"
        assert len(driven.recurrences) == 2
        assert driven.job["status"]["totals"]["recurrences"] == len(RUNS)
        driven.begin(runRequest="fifth", successfulRunsHistoryLimit=2)
        driven.reach_target(driven.train(driven.name_of(index=len(RUNS), request="fifth")))


@pytest.mark.parametrize("spec", [{"maxRecurrences": 4}, {"maxRecurrences": 4, "continuous": True, "runRequest": ""}])
def test_a_restored_job_of_which_nobody_knows_how_often_it_ran_waits_for_its_user(
    driven: DrivenJob, kubectl: ClusterCommand, cluster: DynamicClient, tmp_path: Path, spec: dict[str, Any]
) -> None:
    driven.begin(suspend=True)
    (job,) = backup(kubectl, driven.key.namespace)
    job["spec"] |= {"suspend": False, **spec}
    lose_objects(kubectl, cluster, driven.key.namespace)
    with open_store(tmp_path / "new.db") as empty:
        driven.operator.restart(empty)
        restore(kubectl, [job])
        for _ in range(2):
            driven.reconcile()
            assert condition_reasons(driven)["Ready"] == "HistoryUnknown"
        kubectl("patch", "rtj", "digits", "--type=merge", '--patch={"spec":{"maxRecurrences":1,"continuous":true}}',
                namespace=driven.key.namespace)  # fmt: skip
        driven.reconcile()
        assert [each["spec"]["index"] for each in driven.recurrences] == [0]


def test_the_manifest_alone_gets_its_history_by_the_annotation_and_not_by_its_name(
    driven: DrivenJob, kubectl: ClusterCommand, cluster: DynamicClient
) -> None:
    run_all(driven)
    namespace, history = driven.key.namespace, driven.job["metadata"]["annotations"][HISTORY_ANNOTATION]
    assert history == f"{namespace}/digits/{driven.job['metadata']['uid']}"
    lose_objects(kubectl, cluster, namespace)
    manifest = job_manifest(runRequest=RUNS[-1])
    driven.operator.restart()
    kubectl.apply(manifest, namespace=namespace)
    driven.reconcile()
    assert driven.job["status"]["totals"]["recurrences"] == 1, "a new job of the same name"
    lose_objects(kubectl, cluster, namespace)
    manifest["metadata"]["annotations"] = {HISTORY_ANNOTATION: history}
    driven.operator.restart()
    kubectl.apply(manifest, namespace=namespace)
    assert_started_nothing(driven, kubectl)
    assert driven.job["status"]["totals"]["reached"] == len(RUNS)


@pytest.mark.parametrize("is_alive", [True, False])
def test_no_job_takes_the_history_of_another_tenant(
    driven: DrivenJob, kubectl: ClusterCommand, cluster: DynamicClient, store: Store, is_alive: bool
) -> None:
    driven.reach_target(driven.start())
    namespace, uid = driven.key.namespace, driven.job["metadata"]["uid"]
    if not is_alive:
        lose_objects(kubectl, cluster, namespace)
        driven.operator.restart()
    thief = JobKey(namespace, "thief")
    manifest = job_manifest(thief.name, suspend=True)
    manifest["metadata"]["annotations"] = {HISTORY_ANNOTATION: f"{namespace}/{thief.name}/{uid}"}
    kubectl.apply(manifest, namespace=namespace)
    driven.operator.reconcile(thief)
    job = kubectl.json("get", "rtj", thief.name, namespace=namespace)
    assert job["metadata"]["annotations"][HISTORY_ANNOTATION] == f"{namespace}/{thief.name}/{job['metadata']['uid']}"
    assert job["status"]["totals"].get("reached", 0) == 0
    events = kubectl.json("get", "events.events.k8s.io", namespace=namespace)["items"]
    assert "HistoryRefused" in {each["reason"] for each in events if each["regarding"]["name"] == thief.name}


def test_the_pod_by_which_a_database_is_restored_is_accepted(kubectl: ClusterCommand, shell: Shell) -> None:
    file = ROOT / "examples" / "day-two" / "database-pod.yaml"
    command = page_command("kubectl --namespace wattloop apply").replace(
        "examples/day-two/database-pod.yaml", str(file)
    )
    shell(f"{command.replace('--namespace wattloop', '--namespace default')} --dry-run=server")


def test_an_annotation_of_another_cluster_takes_no_history_away_and_a_missing_one_is_written_again(
    driven: DrivenJob, kubectl: ClusterCommand
) -> None:
    driven.reach_target(driven.start())
    namespace, history = driven.key.namespace, driven.job["metadata"]["annotations"][HISTORY_ANNOTATION]
    for text in (f"{namespace}/digits/0f3a9c52-77aa-4d1e-8f15-1a0d8f2c9b11", "other/copy/1", "-", ""):
        change = f"{HISTORY_ANNOTATION}={text}" if text else f"{HISTORY_ANNOTATION}-"
        kubectl("annotate", "rtj", "digits", change, "--overwrite", namespace=namespace)
        driven.reconcile()
        assert driven.job["metadata"]["annotations"][HISTORY_ANNOTATION] == history
        assert driven.job["status"]["totals"]["reached"] == 1
        assert len(driven.recurrences) == 1
