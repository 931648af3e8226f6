"""`kubectl wattloop ui` and `wattloop ui-server` on a real API server: who may list what sees it, and nothing else."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from support.chart.rendering import chosen, render
from support.chart.rights import granted_soon
from support.control_plane.commands import ClusterCommand
from support.control_plane.job_manifest import job_manifest
from support.control_plane.tokens import service_account_token
from support.databases.many_jobs import running_recurrence
from support.ui_command import command, serving
from wattloop.commands.main import main
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import HttpTransport
from wattloop_operator.cluster.auth.token_review import claimed_audiences
from wattloop_operator.cluster.auth.viewers import UI_AUDIENCE
from wattloop_operator.domain.names import JobKey
from wattloop_operator.page.cluster_jobs import ClusterJobs
from wattloop_operator.page.cluster_reader import MAX_AGE_SECONDS, ClusterReader
from wattloop_operator.workloads.injection import AUDIENCE

RESOURCES = ("recurringtrainingjobs", "trainingrecurrences")
RUNNING = "mine-00003-1-0"
NEXT = {"batchSize": 64, "kind": "Incumbent", "reason": "64 is the cheapest so far"}
STATE = {"state": "Running", "conditions": [], "next": NEXT, "totals": {"recurrences": 4}}
UI_RIGHTS: dict[str, set[str]] = {
    "recurringtrainingjobs.wattloop.dev": {"list"},
    "trainingrecurrences.wattloop.dev": {"list"},
    "gpunodes.wattloop.dev": {"list"},
    "tokenreviews.authentication.k8s.io": {"create"},
    "subjectaccessreviews.authorization.k8s.io": {"create"},
    "pods": set(),
    "secrets": set(),
}


@dataclass(frozen=True)
class Team:
    """A namespace with the job `mine`, which runs, and its reader; and one of others with the job `theirs`."""

    namespace: str
    others: str
    reader: Path


@pytest.fixture
def team(
    kubectl: ClusterCommand,
    crds: None,
    namespace: str,
    core: client.CoreV1Api,
    admin: client.ApiClient,
    service_account_kubeconfig: Callable[[str, str], Path],
) -> Team:
    made = core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(generate_name="test-")))
    others = str(made.metadata.name)
    kubectl.apply(job_manifest("theirs"), namespace=others)
    kubectl.apply(job_manifest("mine"), namespace=namespace)
    uid = kubectl.json("get", "rtj", "mine", namespace=namespace)["metadata"]["uid"]
    body = running_recurrence("mine", powerLimitWatts=200)
    owner = {"apiVersion": body["apiVersion"], "kind": "RecurringTrainingJob", "name": "mine", "uid": uid}
    body["metadata"] = {"name": RUNNING, "ownerReferences": [owner | {"controller": True}]}
    body["spec"]["jobRef"]["uid"] = uid
    status = body.pop("status")
    status["conditions"][0] |= {"message": "it runs"}
    kubectl.apply(body, namespace=namespace)
    for target, written in ((f"trec/{RUNNING}", status), ("rtj/mine", STATE)):
        patch = json.dumps({"status": written})
        kubectl("patch", target, "--subresource=status", "--type=merge", f"--patch={patch}", namespace=namespace)
    kinds = ",".join(f"{each}.wattloop.dev" for each in RESOURCES)
    kubectl("create", "role", "reader", "--verb=list", f"--resource={kinds}", namespace=namespace)
    account = f"--serviceaccount={namespace}:default"
    kubectl("create", "rolebinding", "reader", "--role=reader", account, namespace=namespace)
    for each in RESOURCES:
        asked: dict[str, Any] = {"resource": f"{each}.wattloop.dev", "where": namespace}
        assert granted_soon({"list"}, admin=admin, namespace=namespace, service_account="default", **asked) == {"list"}
    return Team(namespace, others, service_account_kubeconfig(namespace, "default"))


def test_a_reader_of_one_namespace_sees_nothing_of_another(kubectl: ClusterCommand, team: Team) -> None:
    with serving(kubectl, team.reader) as page:
        jobs = page.get("/api/jobs").json()
        assert [(job["namespace"], job["name"], job["state"]) for job in jobs["jobs"]] == [
            (team.namespace, "mine", "Running")
        ]
        assert jobs["command"].startswith(f"kubectl get rtj --namespace {team.namespace} --output=wide --context ")
        theirs = {"namespace": team.others, "name": "theirs"}
        for path in ("/job", "/conditions", "/api/job", "/api/conditions", "/plots/cost.svg"):
            assert page.get(path, params=theirs).status_code == 404
        for path in ("/", "/cluster", "/month", "/?search=theirs"):
            answer = page.get(path)
            assert answer.status_code == 200
            assert team.others not in answer.text
        mine = {"namespace": team.namespace, "name": "mine"}
        job = page.get("/api/job", params=mine).json()
        assert (job["next_decision"]["batch_size"], job["next_unknown"]) == (64, "")
        assert "64 is the cheapest so far" in page.get("/job", params=mine).text
        assert [each["name"] for each in job["running"]] == [RUNNING]
        (condition,) = page.get("/api/conditions", params=mine).json()["conditions"]
        assert (condition["subject"], condition["message"]) == (RUNNING, "it runs")
        (gpu,) = page.get("/api/cluster").json()["gpus"]
        assert (gpu["gpu"], gpu["gpus"], gpu["attempt"], gpu["limit_watts"]) == ("", 1, RUNNING, 200)
        assert "kubectl wattloop history mine" in page.get("/job", params=mine).text
        assert "recurrences that the cluster keeps as objects" in page.get("/month").text
    with command(kubectl, team.reader, "-n", team.others) as refused:
        text = refused.stderr.read()
        assert refused.wait(60) == 1
    assert "cannot list resource" in text
    assert "name a namespace that you may read with -n" in text


def test_an_administrator_sees_all_namespaces_and_changes_as_they_come(
    kubectl: ClusterCommand, admin: client.ApiClient, team: Team
) -> None:
    with serving(kubectl, kubectl.kubeconfig) as page:
        jobs = page.get("/api/jobs", params={"search": team.others}).json()
        assert [(job["namespace"], job["name"]) for job in jobs["jobs"]] == [(team.others, "theirs")]
        assert jobs["command"].startswith("kubectl get rtj --all-namespaces")
    now = [0.0]
    source = ClusterJobs(ClusterReader(ClusterApi(HttpTransport(admin)), "tests", [team.others], clock=lambda: now[0]))
    before = source.version()
    kubectl("delete", "rtj", "theirs", "--wait", namespace=team.others)
    assert (source.version(), source.keys()) == (before, (JobKey(team.others, "theirs"),))
    now[0] = MAX_AGE_SECONDS
    source.refresh()
    assert source.version() != before
    assert source.keys() == ()


def test_the_chart_s_page_is_found_in_any_release_and_each_reason_why_it_cannot_be_forwarded_is_named(
    kubectl: ClusterCommand,
    helm: ClusterCommand,
    team: Team,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(kubectl.program.parent))
    monkeypatch.setenv("HOME", str(kubectl.home))

    def forward(*words: str, user: Path = kubectl.kubeconfig) -> tuple[int, str, str]:
        code = main(["ui", "--forward", "--bind", "127.0.0.1:0", "--kubeconfig", str(user), *words], "kubectl wattloop")
        return code, *capfd.readouterr()

    assert "no release of the chart in the namespace home serves the page: helm upgrade" in forward("-n", "home")[2]
    (deployment,) = chosen(render(helm, {"ui": {"enabled": True}}, tmp_path), "Deployment/ui")
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "home"}}, deployment)
    refused = forward(user=team.reader)
    assert refused[0] == 1
    assert "(Forbidden)" in refused[2]
    assert "name the namespace of Wattloop's release with -n" in refused[2]
    code, token, problem = forward("--serviceaccount", f"{team.namespace}:default")
    assert (code, token) == (1, "")
    assert "It takes a pod that runs (kubectl describe deployment probe-wattloop-ui --namespace home)" in problem
    assert 'serviceaccounts "nobody" not found' in forward("--serviceaccount", f"{team.namespace}:nobody")[2]
    hosts = [
        {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--hosts=page.example,b.example"}
    ]
    kubectl("patch", "deployment/probe-wattloop-ui", "--type=json", f"--patch={json.dumps(hosts)}", namespace="home")
    code, token, text = forward("-n", "home", "--serviceaccount", f"{team.namespace}:default")
    assert code == 0
    assert "live page at https://page.example or https://b.example" in text
    assert claimed_audiences(token.strip()) == (UI_AUDIENCE,)


@pytest.fixture
def ui_account(
    helm: ClusterCommand,
    kubectl: ClusterCommand,
    admin: client.ApiClient,
    service_account_kubeconfig: Callable[[str, str], Path],
    tmp_path: Path,
) -> Path:
    """A kubeconfig of the account that the chart makes for the page, with the chart's rights."""
    objects = [
        item
        for kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
        for item in chosen(render(helm, {"ui": {"enabled": True}}, tmp_path), f"{kind}/ui")
    ]
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "home"}})
    kubectl.apply(*objects)
    account = {"admin": admin, "namespace": "home", "service_account": "probe-wattloop-ui"}
    for resource, verbs in UI_RIGHTS.items():
        assert granted_soon(verbs, resource=resource, where="home", **account) == verbs
    return service_account_kubeconfig("home", "probe-wattloop-ui")


def test_the_server_shows_each_viewer_the_namespaces_that_he_may_list(
    kubectl: ClusterCommand, core: client.CoreV1Api, team: Team, ui_account: Path
) -> None:
    def bearer(namespace: str, *audiences: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {service_account_token(core, namespace, 'default', audiences=audiences)}"}

    reader, stranger = bearer(team.namespace, UI_AUDIENCE), bearer(team.others)
    theirs = {"namespace": team.others, "name": "theirs"}
    with serving(kubectl, ui_account, subcommand="ui-server") as page:
        for headers in ({}, {"Authorization": "Bearer forged"}, bearer(team.namespace, AUDIENCE)):
            refused = page.get("/", headers=headers)
            assert refused.status_code == 401
            assert "kubectl create token" in refused.text
        for token in (reader, bearer(team.namespace)):
            jobs = page.get("/api/jobs", headers=token).json()
            assert [(job["namespace"], job["name"], job["state"]) for job in jobs["jobs"]] == [
                (team.namespace, "mine", "Running")
            ]
            assert jobs["viewer"] == f"system:serviceaccount:{team.namespace}:default"
        for path in ("/job", "/conditions", "/api/job", "/api/conditions", "/plots/cost.svg"):
            assert page.get(path, params=theirs, headers=reader).status_code == 404
        for path in ("/", "/cluster", "/month", "/?search=theirs"):
            assert team.others not in page.get(path, headers=reader).text
        empty = page.get("/", headers=stranger)
        assert empty.status_code == 200
        assert f"--clusterrole=view --serviceaccount={team.others}:default --namespace NAMESPACE" in empty.text
        assert "mine" not in empty.text
        signed_in = page.post("/sign-in", data={"token": reader["Authorization"].split()[1]})
        assert signed_in.status_code == 303
        assert "mine" in page.get("/").text
