"""The page over HTTP: who may ask, what a response allows, and that HTML and JSON have the same content."""

import csv
import io
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from support.databases.many_jobs import LONGEST, NAMESPACE, RUNNING, make_database
from support.databases.sample_record import RECORD
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.page.request_guard import POLICY
from wattloop_operator.store.attempt_progress import text_of
from wattloop_operator.store.store import Store

# The first view of a job imports what decides, which takes long on a busy machine.
STATIC = Path(__file__).parents[3] / "operator/wattloop_operator/page/static"
CLIENT = httpx.Client(timeout=90)
Serve = Callable[[Store], str]
JOB = {"namespace": NAMESPACE, "name": LONGEST}
PATHS = [
    *("/", "/job", "/conditions", "/cluster", "/month", "/plots/cost.svg", "/static/page.js"),
    *("/api/jobs", "/api/job", "/api/conditions", "/api/cluster", "/api/month"),
]


@pytest.fixture(scope="module", autouse=True)
def client_closed() -> Iterator[None]:
    with CLIENT:
        yield


def test_a_request_to_another_name_is_refused(served: Serve, small: Store) -> None:
    url = served(small)
    for path in PATHS:
        assert CLIENT.get(url + path, params=JOB, headers={"Host": "localhost:9999"}).status_code == 200, path
        for host in ("evil.example", "127.0.0.1.evil.example:80", "", "localhost.evil.example"):
            assert CLIENT.get(url + path, params=JOB, headers={"Host": host}).status_code == 421, (path, host)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Origin": "http://127.0.0.1:1"},
    ],
)
def test_a_page_of_another_origin_reads_nothing(served: Serve, small: Store, headers: dict[str, str]) -> None:
    url = served(small)
    assert CLIENT.get(f"{url}/api/jobs", headers=headers).status_code == 403
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert CLIENT.get(url, headers=link).status_code == 200


def test_every_response_has_the_policy_and_no_cookie(served: Serve, small: Store) -> None:
    assert "unsafe" not in POLICY
    url = served(small)
    for path in (*PATHS, "/nowhere", "/healthz"):
        answer = CLIENT.get(url + path, params=JOB)
        policy = answer.headers["content-security-policy"]
        is_plots = path.endswith(".svg") and policy.startswith("default-src 'none'; style-src")
        assert policy == POLICY or is_plots, path
        assert answer.headers["x-content-type-options"] == "nosniff", path
        assert answer.headers["cross-origin-resource-policy"] == "same-origin", path
        assert "set-cookie" not in answer.headers, path
        assert "access-control-allow-origin" not in answer.headers, path


def test_nothing_can_be_written(served: Serve, small: Store) -> None:
    url = served(small)
    for path in ("/", "/job", "/api/job", "/events", "/healthz", "/static/page.js"):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert CLIENT.request(method, url + path, params=JOB).status_code == 405, (method, path)


def test_no_template_has_a_script_or_a_style_of_its_own() -> None:
    templates = Path(__file__).parents[3] / "operator/wattloop_operator/page/templates"
    text = "".join(path.read_text() for path in templates.iterdir())
    assert text.count("<script") == text.count('<script src="/static/page.js" defer></script>') == 1
    assert [each for each in ("<style", "style=", "safe", "onclick", "javascript:", "://") if each in text] == []


def test_a_view_as_json_has_the_figures_of_the_page(served: Serve, small: Store) -> None:
    url = served(small)
    job = CLIENT.get(f"{url}/api/job", params=JOB).json()
    assert [row["recurrence"] for row in job["recurrences"]] == [2, 1, 0]
    (running,) = job["running"]
    assert running["final_metric"] == {"value": 0.96, "low": 0.94, "high": 0.97}
    # Half of 500 J and 2 s of 300 W, of 4,000 J for 4 epochs of it.
    assert (running["energy_joules"], running["time_seconds"]) == (500.0, 2.0)
    assert round(running["limit_percent"], 6) == 13.75
    assert running["limit_epochs"] == pytest.approx(4 * 4000 / 550)
    assert job["last_decision"]["reason"] == "a trial of 64"
    following = job["next_decision"]
    assert (following["recurrence"], following["batch_size"], following["power_limit_watts"]) == (4, 64, 200.0)
    assert (following["reason"], job["next_unknown"]) == ("64 is the cheapest so far", "")
    assert [each["state"] for each in job["beliefs"]] == ["untried", "tried", "incumbent", "excluded"]
    assert [mark["kind"] for mark in job["marks"]] == ["image", "image"]
    html = CLIENT.get(f"{url}/job", params=JOB).text
    for text in ("a trial of 64", "0.5 kJ in 2 s", "13.75 %", "0.96 (0.94 to 0.97)", job["command"]):
        assert text in html


def test_a_command_line_names_the_job_and_the_database(served: Serve, small: Store) -> None:
    url = served(small)
    assert CLIENT.get(f"{url}/api/jobs").json()["command"] == "wattloop history --database wattloop.db --jobs"
    job = CLIENT.get(f"{url}/api/job", params=JOB).json()
    assert job["command"] == f"wattloop history {LONGEST} --namespace {NAMESPACE} --database wattloop.db"
    assert job["plot_command"].startswith("wattloop plot ")


def test_many_jobs_are_paged_and_searched(served: Serve, tmp_path: Path) -> None:
    with make_database(tmp_path / "many.db", 120, 120) as store:
        url = served(store)
        jobs = CLIENT.get(f"{url}/api/jobs", params={"page": 3}).json()
        assert (jobs["total"], jobs["pages"], len(jobs["jobs"])) == (120, 3, 20)
        assert CLIENT.get(f"{url}/api/jobs", params={"page": 99}).json()["page"] == 3
        found = CLIENT.get(f"{url}/api/jobs", params={"search": "OB-011"}).json()
        assert [job["name"] for job in found["jobs"]] == [f"job-011{digit}" for digit in range(10)]
        pages = [CLIENT.get(f"{url}/api/job", params={**JOB, "page": page}).json() for page in (1, 2, 3)]
        assert [row["recurrence"] for page in pages for row in page["recurrences"]] == list(range(119, -1, -1))


def test_a_job_with_observations_alone_says_what_is_not_known(served: Serve, hostile: Store) -> None:
    url = served(hostile)
    (alone,) = [job for job in CLIENT.get(f"{url}/api/jobs").json()["jobs"] if job["state"] is None]
    key = {"namespace": alone["namespace"], "name": alone["name"]}
    job = CLIENT.get(f"{url}/api/job", params=key).json()
    assert (job["next_decision"], job["beliefs"], len(job["recurrences"])) == (None, [], 1)
    assert "only the observations" in job["next_unknown"]
    assert CLIENT.get(f"{url}/conditions", params=key).status_code == 200


def test_the_view_of_the_gpus_has_the_power_the_limits_and_who_holds_them(served: Serve, small: Store) -> None:
    found = small.objects.get("TrainingRecurrence", NAMESPACE, RUNNING)
    assert found is not None
    recent = {"powerWatts": "180.5", "seconds": "90", "time": "2026-03-02T03:10:00Z", "startTimeSeconds": "0"}
    gpu = {"uuid": "GPU-0", "startEnergyMillijoules": 0, "energyMillijoules": 500_000, "recent": recent}
    gpu |= {"startTimeSeconds": "0", "timeSeconds": "2"}
    progress = Progress.from_wire({"gpus": [gpu], "gpuProduct": "NVIDIA A40", "powerLimitWatts": 200})
    attempt = TrainingAttempt.of(found.read_as(TrainingRecurrence), None)
    now = datetime(2026, 3, 2, 3, 10, tzinfo=UTC)
    small.attempt_progress.write(attempt, text_of(progress), ending=False, now=now)
    url = served(small)
    view = CLIENT.get(f"{url}/api/cluster").json()
    (node,) = view["nodes"]
    assert (node["node"], node["gpus"], node["limit_watts"], node["partial_attempts"]) == ("this machine", 1, 200.0, 0)
    assert (node["mean_power_watts"], node["recent_power_watts"]) == (250.0, 180.5)
    (line,) = view["gpus"]
    assert (line["gpu"], line["attempt"], line["mean_power_watts"]) == ("GPU-0", RUNNING, 250.0)
    assert line["limit_watts"] == 200
    html = CLIENT.get(f"{url}/cluster").text
    for text in (
        "GPU-0",
        RUNNING,
        "NVIDIA A40",
        "of 90 s to",
        "the attempt ends",
        "wattloop history --database wattloop.db --gpus",
    ):
        assert text in html


def test_the_view_of_a_month_has_the_sums_of_each_team_and_job_also_as_csv(served: Serve, small: Store) -> None:
    url = served(small)
    month = CLIENT.get(f"{url}/api/month").json()
    assert (month["month"], month["previous"]) == ("2026-03", "2026-02")
    (team,) = month["teams"]
    assert (team["namespace"], team["jobs"], team["attempts"], team["coverage_percent"]) == (NAMESPACE, 3, 7, 100.0)
    assert team["energy_joules"] == sum(job["energy_joules"] for job in month["jobs"]) == 12_661.0
    assert [job["name"] for job in month["jobs"]] == ["job-0000", "job-0001", "job-0002"]
    assert month["command"] == "wattloop history --database wattloop.db --month 2026-03"
    sheet = CLIENT.get(f"{url}/month.csv", params={"month": "2026-03"})
    rows = list(csv.DictReader(io.StringIO(sheet.text)))
    assert [float(row["energy_joules"]) for row in rows] == [job["energy_joules"] for job in month["jobs"]]
    focus = CLIENT.get(f"{url}/month.csv", params={"month": "2026-03", "columns": "focus"})
    assert 'filename="focus-2026-03.csv"' in focus.headers["Content-Disposition"]
    assert [row["ResourceName"] for row in csv.DictReader(io.StringIO(focus.text))] == [
        job["name"] for job in month["jobs"]
    ]
    assert "No attempt ended in 2026-02." in CLIENT.get(f"{url}/month", params={"month": "2026-02"}).text


def test_what_is_no_month_is_explained(served: Serve, empty: Store) -> None:
    url = served(empty)
    for month in ("2026-13", "0000-01", "", "2026-3", "=1+1"):
        for path in ("/month", "/month.csv", "/api/month"):
            answer = CLIENT.get(url + path, params={"month": month})
            assert (answer.status_code, "month" in answer.text) == (422, True)


def test_an_operators_database_says_where_running_gpus_are(served: Serve, empty: Store) -> None:
    url = served(empty)
    assert "No attempt holds a GPU now." in CLIENT.get(f"{url}/cluster").text
    empty.observations.record(RECORD)
    assert "does not store running attempts" in CLIENT.get(f"{url}/cluster").text


def test_a_job_that_does_not_exist_is_not_found(served: Serve, small: Store) -> None:
    url = served(small)
    for path in ("/job", "/conditions", "/plots/cost.svg", "/api/job", "/api/conditions"):
        answer = CLIENT.get(url + path, params={"namespace": "team", "name": "none"})
        assert answer.status_code == 404, path
        assert "There is no such job" in answer.text, path
        assert ("<h1>" in answer.text) == (not path.startswith("/api")), path


def test_the_files_of_the_page_are_served_from_memory_and_kept_by_their_tag(served: Serve, small: Store) -> None:
    url = served(small)
    types = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
    for name, media_type in types.items():
        answer = CLIENT.get(f"{url}/static/{name}")
        assert answer.headers["content-type"].startswith(media_type)
        assert answer.content == (STATIC / name).read_bytes()
        again = CLIENT.get(f"{url}/static/{name}", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert CLIENT.get(f"{url}/static/{name}", headers={"If-None-Match": '"other"'}).status_code == 200
    for name in ("nothing.js", "..%2Fpage_app.py", "%2e%2e/page_app.py"):
        assert CLIENT.get(f"{url}/static/{name}").status_code == 404


@pytest.mark.parametrize("query", [{"page": "0"}, {"page": "x"}, {"search": "x" * 254}, {"page": "9" * 30}])
def test_an_invalid_query_is_explained(served: Serve, small: Store, query: dict[str, str]) -> None:
    url = served(small)
    assert CLIENT.get(url, params=query).status_code == 422
    assert next(iter(query)) in CLIENT.get(f"{url}/api/jobs", params=query).json()["detail"]


def test_a_database_that_fails_is_a_page_that_says_so(served: Serve, small: Store, tmp_path: Path) -> None:
    url = served(small)
    assert CLIENT.get(f"{url}/healthz").status_code == 204
    for path in tmp_path.glob("wattloop.db*"):
        path.write_bytes(b"no database" * 1000)
    answer = CLIENT.get(f"{url}/")
    assert answer.status_code == 503
    assert "The jobs cannot be read" in answer.text
    assert CLIENT.get(f"{url}/healthz").status_code == 503


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("plot", exhaustive_after(["curve", "cost", "tradeoff"]))
def test_a_plot_has_the_colours_of_its_theme_and_loads_nothing(
    served: Serve, small: Store, plot: str, theme: str
) -> None:
    url = served(small)
    svg = CLIENT.get(f"{url}/plots/{plot}.svg", params={**JOB, "theme": theme})
    assert svg.headers["content-type"] == "image/svg+xml"
    assert ("#1a2026" in svg.text, "#ffffff" in svg.text) == (theme == "dark", theme == "light")
    assert "<script" not in svg.text
    assert CLIENT.get(f"{url}/plots/{plot}.svg", params={**JOB, "theme": theme}).content == svg.content


def test_a_stream_tells_of_each_change_and_of_a_failure(served: Serve, small: Store, tmp_path: Path) -> None:
    url = served(small)
    with CLIENT.stream("GET", f"{url}/events") as stream:
        lines = (line for line in stream.iter_lines() if line.startswith(("event", "data")))
        assert next(lines) == "event: version"
        first = next(lines)
        small.objects.create("LocalRun", "team", "x", {})
        assert next(lines) == "event: version"
        assert next(lines) != first
        for path in tmp_path.glob("wattloop.db*"):
            path.write_bytes(b"no database" * 1000)
        assert next(lines) == "event: failure"
