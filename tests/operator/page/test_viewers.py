"""The page of several viewers: who is one, what he sees, and for how long an answer of the API server counts."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from support.databases.many_jobs import LONGEST, NAMESPACE, RUNNING
from support.reviewed_cluster import OTHERS, ReviewedCluster
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.cluster.api import GPU_NODES, SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, ClusterApi
from wattloop_operator.cluster.auth.viewers import (
    REFUSALS,
    REVIEWED_SECONDS,
    REVIEWS,
    RIGHTS_SECONDS,
    UNKNOWN_TOKENS_OF_ADDRESS,
)
from wattloop_operator.domain.names import JOB_LABEL
from wattloop_operator.memory_shares import MEBIBYTE
from wattloop_operator.page.authentication import MAX_SESSIONS, MAX_SESSIONS_OF_USER, SESSION_SECONDS, Sessions
from wattloop_operator.page.change_stream import OpenStreams
from wattloop_operator.page.cluster_jobs import TOO_MANY_REVIEWS, UNREVIEWED
from wattloop_operator.page.cluster_page import create_cluster_page
from wattloop_operator.page.cluster_reader import MAX_AGE_SECONDS
from wattloop_operator.reporting.interfaces import BearerToken

THEIRS = {"namespace": OTHERS, "name": "theirs"}


class Browser:
    """Sends requests to the page of a cluster; keeps no cookie by itself."""

    def __init__(self, cluster: ReviewedCluster, *, is_https: bool = False, **options: Any) -> None:
        options |= {"is_https": is_https, "clock": lambda: cluster.now}
        self._page = create_cluster_page(ClusterApi(cluster), OpenStreams(), ["localhost"], **options)
        self._base = f"{'https' if is_https else 'http'}://localhost"

    def ask(self, path: str, token: str = "", method: str = "GET", **options: Any) -> httpx.Response:
        peer = options.pop("address", "10.0.0.1"), 1
        headers = options.pop("headers", {}) | ({"Authorization": f"Bearer {token}"} if token else {})

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self._page, client=peer)
            async with httpx.AsyncClient(transport=transport, base_url=self._base) as client:
                return await client.request(method, path, headers=headers, **options)

        return asyncio.run(send())

    def jobs(self, token: str) -> list[str]:
        return [each["name"] for each in self.ask("/api/jobs", token).json()["jobs"]]


@pytest.fixture
def cluster() -> ReviewedCluster:
    return ReviewedCluster()


@pytest.fixture
def browser(cluster: ReviewedCluster) -> Browser:
    return Browser(cluster)


def test_a_viewer_of_a_namespace_sees_nothing_of_another(cluster: ReviewedCluster, browser: Browser) -> None:
    ours = browser.ask("/api/jobs", "ours").json()
    assert ([each["name"] for each in ours["jobs"]], ours["viewer"]) == ([LONGEST], "ann")
    assert ours["command"] == f"kubectl get rtj --namespace {NAMESPACE} --output=wide"
    assert browser.jobs("theirs") == ["theirs"]
    assert sorted(browser.jobs("all")) == [LONGEST, "theirs"]
    for path in ("/job", "/conditions", "/api/job", "/api/conditions", "/plots/cost.svg"):
        assert browser.ask(path, "ours", params=THEIRS).status_code == 404
    for path in ("/", "/cluster", "/?search=theirs"):
        assert OTHERS not in browser.ask(path, "ours").text
    # A recurrence of another namespace is none of this job's, although it says so.
    attempts = browser.ask("/api/cluster", "ours").json()["gpus"]
    assert {each["attempt"] for each in attempts} == {RUNNING}
    cluster.jobs[1]["metadata"]["resourceVersion"] = "2"
    cluster.now += 10
    assert browser.ask("/api/jobs", "ours").json()["version"] == ours["version"]


def test_all_gpus_are_shown_to_viewers_who_may_list_them_and_the_others_read_which_right_it_takes(
    cluster: ReviewedCluster, browser: Browser
) -> None:
    def node(size: int) -> dict[str, Any]:
        gpus = [{"uuid": f"GPU-{index:090}", "pods": 0} for index in range(size)]
        return {"metadata": {"name": "secret-node", "uid": "n", "resourceVersion": "1"}, "status": {"gpus": gpus}}

    cluster.gpu_nodes = [node(1)]
    assert "secret-node" in browser.ask("/cluster", "all").text
    refused, body = (browser.ask(path, "ours") for path in ("/cluster", "/api/cluster"))
    assert "secret-node" not in refused.text + body.text
    assert "ann may not list gpunodes" in refused.text
    assert "kubectl create clusterrolebinding gpunodes --clusterrole=gpunodes --user=ann" in refused.text
    assert body.json()["command"] == ""
    # A review that fails for GPUNodes alone.
    cluster.now += RIGHTS_SECONDS
    browser.ask("/api/jobs", "ours")
    cluster.unreviewed = {GPU_NODES.plural}
    for path in ("/cluster", "/api/cluster"):
        unknown = browser.ask(path, "ours")
        assert unknown.status_code == 200
        assert RUNNING in unknown.text
        assert "GPUNodes cannot be read now" in unknown.text
    cluster.unreviewed = set()
    # The page's own account lacks the right, or the objects are too many for its memory: all else is shown.
    narrow = Browser(cluster, namespaces=(NAMESPACE,))
    cluster.refused = {""}
    assert "The account of this page may not list gpunodes" in narrow.ask("/cluster", "all").text
    cluster.refused = set()
    cluster.gpu_nodes = [node(64)]
    small = Browser(cluster, namespace_bytes=32 * 1024)
    assert "GPUNodes take more than 0 MiB" in small.ask("/cluster", "all").text
    assert small.jobs("all") != []


def test_a_namespace_that_the_page_may_not_list_is_missing_for_its_viewers_alone(
    cluster: ReviewedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    browser = Browser(cluster, namespaces=(NAMESPACE, OTHERS))
    cluster.refused = {OTHERS}
    for _ in range(2):
        cluster.now += MAX_AGE_SECONDS
        assert browser.jobs("ours") == browser.jobs("all") == [LONGEST]
    assert OTHERS not in browser.ask("/", "ours").text
    for token in ("all", "theirs"):
        assert f"namespace {OTHERS} is not shown: the page may not list it" in browser.ask("/", token).text
    (logged,) = caplog.messages
    assert f'cannot list resource in the namespace "{OTHERS}"; give this account the right' in logged
    cluster.refused.add(NAMESPACE)
    cluster.now += MAX_AGE_SECONDS
    # First the one that waits for newer objects: a page would show the known ones.
    for path in ("/api/jobs", "/", "/cluster"):
        answer = browser.ask(path, "ours")
        assert answer.status_code == 503
        assert "its log has the reason" in answer.text
        assert "serviceaccount" not in answer.text
    assert f'in the namespace "{NAMESPACE}"; give this account the right' in caplog.messages[-1]
    assert len(caplog.messages) == 2


def test_a_namespace_that_is_too_large_is_missing_for_its_viewers_alone(cluster: ReviewedCluster) -> None:
    browser = Browser(cluster, namespace_bytes=MEBIBYTE)
    theirs = cluster.jobs[1]
    theirs["metadata"]["managedFields"] = [{"fieldsV1": "x" * MEBIBYTE}]
    assert browser.jobs("theirs") == ["theirs"]
    theirs["spec"]["template"]["spec"]["filler"] = "x" * MEBIBYTE
    cluster.now += MAX_AGE_SECONDS
    assert browser.jobs("ours") == browser.jobs("all") == [LONGEST]
    assert OTHERS not in browser.ask("/", "ours").text
    for token in ("all", "theirs"):
        assert f"namespace {OTHERS} is not shown: it is too large" in browser.ask("/", token).text
    # The recurrence is listed after the job, when there is no room any more.
    assert browser.ask("/api/cluster", "theirs").json()["gpus"] == []


def ended(recurrence: dict[str, Any], **status: Any) -> None:
    recurrence["status"] |= {"result": "Reached", "completionTime": "2026-03-02T04:00:00Z", **status}


# What makes an object of the other namespace unreadable: its job, or the recurrence of a job of that namespace.
Change = Callable[[dict[str, Any]], object]
UNREADABLE_JOBS: dict[str, Change] = {
    "a field of a later version": lambda job: job["spec"].update(laterField=1),
    "a status of another form": lambda job: job.update(status="Waiting"),
    "a value of a later version": lambda job: job["spec"].update(mode="Later"),
    "no spec": lambda job: job.pop("spec"),
    "nested too deep": lambda job: job["spec"].update(template=None),
}
UNREADABLE_RECURRENCES: dict[str, Change] = {
    "a field of a later version": lambda each: each["status"].update(laterField=1),
    "ended, without a job": lambda each: (ended(each), each["spec"].update(jobRef=None)),
    "pods of another form": lambda each: each["status"].update(pods={"a": 1}),
    "no job": lambda each: each["spec"].pop("jobRef"),
    "no spec": lambda each: each.update(spec=None),
    "ended at no time": lambda each: ended(each, completionTime="never"),
    "ended, with a usage of another form": lambda each: ended(each, usage=[]),
}
VIEWS = ("/", "/month", "/cluster")


@pytest.mark.parametrize("change", exhaustive_after(UNREADABLE_JOBS.values(), usual=2))
def test_a_job_that_cannot_be_read_is_one_row_with_its_problem(
    change: Change, cluster: ReviewedCluster, browser: Browser
) -> None:
    assert sorted(browser.jobs("all")) == [LONGEST, "theirs"]
    recurrence = cluster.recurrences[1]
    recurrence["spec"]["jobRef"] = {"name": "theirs", "uid": "uid-theirs"}
    ended(recurrence)
    for each in (cluster.jobs[1], recurrence):
        each["metadata"]["resourceVersion"] = "2"
    change(cluster.jobs[1])
    cluster.now += MAX_AGE_SECONDS
    problem = f"RecurringTrainingJob {OTHERS}/theirs: found an object that this version of Wattloop cannot read"
    rows = {each["name"]: each for each in browser.ask("/api/jobs", "all").json()["jobs"]}
    assert (rows[LONGEST]["state"], rows["theirs"]["state"], problem in rows["theirs"]["why"]) == (
        "Waiting",
        None,
        True,
    )
    for view in VIEWS:
        answer, other = browser.ask(view, "all"), browser.ask(view, "ours")
        assert (answer.status_code, problem in answer.text) == (200, True), view
        assert (other.status_code, OTHERS in other.text) == (200, False), view
    (line,) = browser.ask("/api/month", "theirs", params={"month": "2026-03"}).json()["jobs"]
    assert (line["name"], line["attempts"]) == ("theirs", 1), "what its recurrences used is known"
    for path in ("/job", "/conditions", "/api/job", "/api/conditions"):
        answer = browser.ask(path, "theirs", params=THEIRS)
        assert (answer.status_code, problem in answer.text) == (503, True), path
        assert browser.ask(path, "all", params={"namespace": NAMESPACE, "name": LONGEST}).status_code == 200


@pytest.mark.parametrize("change", exhaustive_after(UNREADABLE_RECURRENCES.values(), usual=2))
def test_a_recurrence_that_cannot_be_read_is_named_beside_the_rest_of_its_job(
    change: Change, cluster: ReviewedCluster, browser: Browser
) -> None:
    recurrence = cluster.recurrences[1]
    recurrence["spec"]["jobRef"] = {"name": "theirs", "uid": "uid-theirs"}
    recurrence["metadata"]["labels"] = {JOB_LABEL: "theirs"}
    change(recurrence)
    problem = f"TrainingRecurrence {OTHERS}/forged: found an object that this version of Wattloop cannot read"
    for view in VIEWS:
        answer, other = browser.ask(view, "all"), browser.ask(view, "ours")
        assert (answer.status_code, problem in answer.text) == (200, True), view
        assert (other.status_code, OTHERS in other.text) == (200, False), view
    for path in ("/job", "/conditions"):
        answer = browser.ask(path, "theirs", params=THEIRS)
        assert (answer.status_code, problem in answer.text) == (200, True), path
        assert problem not in browser.ask(path, "all", params={"namespace": NAMESPACE, "name": LONGEST}).text


def test_of_very_many_objects_that_cannot_be_read_the_first_are_named_and_all_are_rows(
    cluster: ReviewedCluster, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.add_namespaces(300)
    for each in cluster.jobs:
        each["spec"]["laterField"] = 1
    found = browser.ask("/api/jobs", "all").json()
    assert (found["total"], len(found["missing"]), found["missing"][-1]) == (302, 9, "294 more objects cannot be read")
    assert all("laterField" in each["why"] for each in found["jobs"])
    assert len(caplog.messages) == 1


def test_a_withdrawn_right_and_a_revoked_token_end_with_what_is_remembered(
    cluster: ReviewedCluster, browser: Browser
) -> None:
    assert browser.jobs("ours") == [LONGEST]
    cluster.rights["ann"].clear()
    cluster.now = RIGHTS_SECONDS - 1
    assert browser.jobs("ours") == [LONGEST]
    cluster.now = RIGHTS_SECONDS
    assert browser.jobs("ours") == []
    del cluster.users["ours"]
    cluster.now = REVIEWED_SECONDS - 1
    assert browser.ask("/", "ours").status_code == 200
    cluster.now = REVIEWED_SECONDS
    answer = browser.ask("/", "ours")
    assert answer.status_code == 401
    assert "has expired" in answer.text


def test_reviews_are_asked_for_once_in_their_time(cluster: ReviewedCluster, browser: Browser) -> None:
    for _ in range(3):
        browser.jobs("ours")
    # All namespaces, then each of the two; the first refused kind decides.
    assert cluster.reviews == {TOKEN_REVIEWS.path(): 1, SUBJECT_ACCESS_REVIEWS.path(): 1 + 2 + 1}
    browser.ask("/cluster", "ours")
    assert cluster.reviews[SUBJECT_ACCESS_REVIEWS.path()] == 1 + 2 + 1 + 1, "GPUNodes are reviewed for their view alone"


def test_of_many_namespaces_each_is_reviewed_in_time_and_until_then_the_page_says_that_jobs_may_be_missing(
    cluster: ReviewedCluster, browser: Browser
) -> None:
    cluster.add_namespaces(300)
    cluster.rights["ann"] = {"further-0299"}
    path = SUBJECT_ACCESS_REVIEWS.path()
    for address in ("/", "/month", "/cluster"):
        assert UNREVIEWED in browser.ask(address, "ours").text
    assert browser.ask("/api/jobs", "ours").json()["missing"] == [UNREVIEWED]
    assert cluster.reviews[path] <= 1 + REFUSALS.burst + 1
    # What is named is found at once, and what may not be listed is not told from what there is not.
    named = {"namespace": "further-0299", "name": "job-of-299"}
    assert browser.ask("/api/job", "ours", params=named).status_code == 200
    for namespace in ("further-0298", "nowhere"):
        answer = browser.ask("/api/job", "ours", params=named | {"namespace": namespace})
        assert (answer.status_code, UNREVIEWED in answer.text) == (404, False)
    # Every viewer keeps what he may list, and nobody sees more, while the rest is reviewed.
    while UNREVIEWED in browser.ask("/api/jobs", "ours").json()["missing"]:
        assert cluster.now < 300 / REFUSALS.per_second
        cluster.now += 5
        assert browser.jobs("ours") == ["job-of-299"]
        assert len(browser.ask("/api/jobs", "all").json()["jobs"]) == 50
    assert cluster.now > RIGHTS_SECONDS
    # A service account's own namespace is the first.
    cluster.now += RIGHTS_SECONDS
    token = cluster.account("further-0298", "reader", "further-0298")
    assert browser.jobs(token) == ["job-of-298"]


def test_who_has_used_up_his_reviews_is_told_so_and_not_that_there_is_nothing(
    cluster: ReviewedCluster, browser: Browser
) -> None:
    cluster.add_namespaces(int(REVIEWS.burst))
    for number in range(int(REVIEWS.burst / 2)):
        answer = browser.ask("/api/job", "ours", params={"namespace": f"further-{number:04}", "name": "any"})
    assert (answer.status_code, TOO_MANY_REVIEWS in answer.text) == (503, True)
    assert browser.ask("/", "ours").status_code == 200
    assert TOO_MANY_REVIEWS in browser.ask("/cluster", "ours").text
    assert browser.ask("/api/job", "theirs", params=THEIRS).status_code == 200


def test_without_a_token_the_page_says_how_to_get_one(browser: Browser) -> None:
    page, json = browser.ask("/"), browser.ask("/api/jobs")
    assert (page.status_code, json.status_code, json.headers["www-authenticate"]) == (401, 401, "Bearer")
    for text in (page.text, json.json()["detail"]):
        assert "kubectl create token SERVICEACCOUNT --namespace NAMESPACE --audience wattloop.dev/ui" in text
    assert browser.ask("/api/jobs", "forged").json() == {
        "detail": "the token is not valid in this cluster, or has expired"
    }
    assert browser.ask("/static/page.css").status_code == 200
    assert "reload the page" in browser.ask("/events").text
    assert [browser.ask(path).status_code for path in ("/month.csv?month=2026-01", "/healthz", "/none")] == [401] * 3


def test_a_viewer_without_rights_sees_an_empty_page_that_says_why(cluster: ReviewedCluster, browser: Browser) -> None:
    text = browser.ask("/", "none").text
    assert "eve may list recurringtrainingjobs and trainingrecurrences in no namespace that has any" in text
    assert "--clusterrole=view --user=eve --namespace NAMESPACE" in text
    assert "Run one" not in text
    cluster.jobs.clear()
    cluster.recurrences.clear()
    cluster.now += MAX_AGE_SECONDS
    assert browser.jobs("all") == []
    assert "There is no job yet." in browser.ask("/", "all").text


def test_a_browser_signs_in_by_a_form_of_the_page_alone_and_out_again(
    cluster: ReviewedCluster, browser: Browser
) -> None:
    for origin in ("http://evil.example", "null", "http://localhost:1"):
        foreign = browser.ask("/sign-in", method="POST", data={"token": "ours"}, headers={"Origin": origin})
        assert foreign.status_code == 403
    own = {"Origin": "http://localhost"}
    signed_in = browser.ask("/sign-in", method="POST", data={"token": " ours\n"}, headers=own)
    cookie = signed_in.headers["set-cookie"]
    assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/")
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Lax")
    assert "ours" not in cookie
    # Another server of localhost has set the first two.
    sent = {"Cookie": f'other=1; prefs={{"a":1}}; {cookie.partition(";")[0]}'}
    page = browser.ask("/", headers=sent)
    assert (page.status_code, LONGEST in page.text, "Sign out" in page.text) == (200, True, True)
    plot = browser.ask("/plots/cost.svg", headers=sent, params={"namespace": NAMESPACE, "name": LONGEST})
    assert (plot.status_code, plot.headers["cache-control"]) == (200, "no-store")
    out = browser.ask("/sign-out", method="POST", headers=sent | own)
    assert (out.status_code, "Max-Age=0" in out.headers["set-cookie"]) == (303, True)
    assert browser.ask("/", headers=sent).status_code == 401
    https = Browser(cluster, is_https=True)
    secure = https.ask("/sign-in", method="POST", data={"token": "ours"}, headers={"Origin": "https://localhost"})
    assert secure.headers["set-cookie"].startswith("__Host-wattloop-session=")
    assert "; Secure" in secure.headers["set-cookie"]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"data": {"token": "forged"}}, 401),
        ({"data": {"token": ""}}, 400),
        ({"data": {"token": "x" * 40_000}}, 400),
        ({"data": {"token": "x" * 9_000}}, 401),
        ({"data": {"tokens": "ours"}}, 400),
        ({"json": {"token": "ours"}}, 400),
        ({"content": b"\xff", "headers": {"Content-Type": "application/x-www-form-urlencoded"}}, 400),
    ],
)
def test_what_is_no_token_begins_no_session(browser: Browser, options: dict[str, Any], status: int) -> None:
    answer = browser.ask("/sign-in", method="POST", **options)
    assert (answer.status_code, "set-cookie" in answer.headers) == (status, False)


def test_a_flood_of_unknown_tokens_is_not_reviewed_and_keeps_no_viewer_out(
    cluster: ReviewedCluster, browser: Browser
) -> None:
    assert browser.jobs("ours") == [LONGEST]
    cluster.now = REVIEWED_SECONDS
    burst = int(UNKNOWN_TOKENS_OF_ADDRESS.burst)
    assert {browser.ask("/api/jobs", f"forged-{each}").status_code for each in range(burst)} == {401}
    refused = browser.ask("/api/jobs", "forged")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert cluster.reviews[TOKEN_REVIEWS.path()] == 1 + burst
    assert "from 10.0.0.1" in refused.json()["detail"]
    # Her token was valid a short time ago, so it is reviewed again without the limit.
    assert browser.jobs("ours") == [LONGEST]
    assert cluster.reviews[TOKEN_REVIEWS.path()] == 2 + burst
    # Who was not here yet signs in from another address.
    signed_in = browser.ask("/sign-in", method="POST", data={"token": "theirs"}, address="10.0.0.2")
    assert signed_in.status_code == 303


def test_sessions_end_by_their_time_and_their_number() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0], is_https=False)
    cookies = [sessions.begin(str(each), BearerToken(str(each))).partition(";")[0] for each in range(MAX_SESSIONS + 1)]
    found = [sessions.token_of(each) is not None for each in cookies]
    assert found == [False] + [True] * MAX_SESSIONS
    now[0] = SESSION_SECONDS
    assert sessions.token_of(cookies[-1]) is None
    assert sessions.token_of("wattloop-session=\x00; =;;") is None


def test_a_user_with_many_sessions_ends_his_own_oldest_alone() -> None:
    sessions = Sessions(lambda: 0.0, is_https=False)
    users = ["bob"] + ["ann"] * (MAX_SESSIONS_OF_USER + 1)
    cookies = [sessions.begin(user, BearerToken(str(each))).partition(";")[0] for each, user in enumerate(users)]
    found = [sessions.token_of(each) is not None for each in cookies]
    assert found == [True, False] + [True] * MAX_SESSIONS_OF_USER
