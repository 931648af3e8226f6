"""The page in Chromium: every view, live, by keyboard, narrow, dark, and with hostile texts."""

import re
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request, expect

from support.databases.many_jobs import HOSTILE, LONGEST, NAMESPACE, RUNNING, make_database, running_recurrence
from support.live_page import serving_viewers
from support.reviewed_cluster import ReviewedCluster
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.store.store import Store, open_store

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
Serve = Callable[[Store], str]
WAIT_MILLISECONDS = 90_000
# The first view of a job imports what decides, which takes long on a busy machine.
expect.set_options(timeout=WAIT_MILLISECONDS)
WATTLOOP = Path(sysconfig.get_path("scripts"), "wattloop")
JOB_FILE = Path(__file__).parents[3] / "examples/digits/job.yaml"
# The paint of the plots, which the page loads when they come into sight.
SHOW_PLOTS = "for (const each of document.images) each.loading = 'eager'"
PLOTS_ARE_DRAWN = "Promise.all([...document.images].map((each) => each.decode()))"
WIDTH_OF_PAGE = "document.documentElement.scrollWidth"
SERIOUS = {"serious", "critical"}


class Watched:
    """A tab, what its console says, and what it asks for."""

    def __init__(self, context: BrowserContext, origin: str) -> None:
        self.origin = origin
        self.page: Page = context.new_page()
        self.page.set_default_timeout(WAIT_MILLISECONDS)
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._message)
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", self._request)
        self.page.on("dialog", lambda dialog: self.messages.append(dialog.message))

    def _message(self, message: ConsoleMessage) -> None:
        self.messages.append(message.text)

    def _request(self, request: Request) -> None:
        self.requests.append(request.url)

    def open(self, path: str, **query: str) -> Page:
        """Open a view, with its plots."""
        answer = self.page.goto(f"{self.origin}{path}?{urlencode(query)}", wait_until="load")
        assert answer.ok, answer.text()
        self.page.evaluate(SHOW_PLOTS)
        self.page.evaluate(PLOTS_ARE_DRAWN)
        return self.page

    def check(self) -> None:
        """Nothing was said, which a violation of the policy would be, and nobody else was asked."""
        assert self.messages == []
        assert [url for url in self.requests if not url.startswith(f"{self.origin}/")] == []


@pytest.fixture
def watched(context: BrowserContext, served: Serve) -> Iterator[Callable[[Store], Watched]]:
    tabs: list[Watched] = []

    def watch(store: Store) -> Watched:
        tabs.append(Watched(context, served(store)))
        return tabs[-1]

    yield watch
    for each in tabs:
        each.check()


Watch = Callable[[Store], Watched]
JOB = {"namespace": NAMESPACE, "name": LONGEST}
# The view of a job has each kind of element: tables, plots, marks and details.
VIEWS: list[tuple[str, dict[str, str]]] = [
    ("/job", JOB),
    ("/", {}),
    ("/conditions", JOB),
    ("/cluster", {}),
    ("/month", {}),
]


def test_an_empty_database_says_the_next_step(watched: Watch, empty: Store) -> None:
    page = watched(empty).open("/")
    expect(page.get_by_text("There is no job yet.")).to_be_visible()
    expect(page.locator("main")).to_contain_text("wattloop run ")


def test_a_reader_goes_from_the_jobs_to_one_and_to_its_conditions(watched: Watch, small: Store) -> None:
    page = watched(small).open("/")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_role("link", name=LONGEST).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(LONGEST)
    page.wait_for_load_state()
    headings = ["Decisions", "The running attempt", "What is believed of each batch size", "Cost of the recurrences"]
    assert page.locator("h2").all_inner_texts()[:4] == headings
    expect(page.get_by_text("epoch", exact=False).first).to_be_visible()
    page.get_by_role("link", name="Why, in full").click()
    expect(page.get_by_role("cell", name=RUNNING)).to_be_visible()
    expect(page.locator("code").last).to_have_text("wattloop history --database wattloop.db --jobs")


@pytest.mark.parametrize("width", exhaustive_after([360, 1280]))
@pytest.mark.parametrize("scheme", exhaustive_after(["dark", "light"]))
@pytest.mark.parametrize(("path", "query"), exhaustive_after(VIEWS), ids=[path for path, _ in VIEWS])
def test_axe_finds_nothing_serious_and_a_phone_is_wide_enough(
    watched: Watch, small: Store, path: str, query: dict[str, str], scheme: str, width: int
) -> None:
    tab = watched(small)
    tab.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    tab.page.set_viewport_size({"width": width, "height": 800})
    page = tab.open(path, **query)
    found = Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in SERIOUS] == []
    # Tables and plots scroll in themselves.
    assert page.evaluate(WIDTH_OF_PAGE) <= width
    themes = {url for url in tab.requests if "/plots/" in url and ("theme=dark" in url) != (scheme == "dark")}
    assert themes == set()


def test_the_keyboard_alone_reaches_every_view_and_pauses(watched: Watch, small: Store) -> None:
    page = watched(small).open("/")
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    for name in ("Wattloop", "Jobs", "GPUs", "Month"):
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text(name)
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(page.locator("#live-toggle")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#live-state")).to_have_text("paused")
    page.keyboard.press("Tab")
    page.keyboard.type("job-0000")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name=LONGEST).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(LONGEST)
    for name, heading in (("GPUs", "GPUs"), ("Month", "2026-03 by team")):
        page.get_by_role("link", name=name, exact=True).focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text(heading)


def test_an_open_page_follows_the_database_and_keeps_the_place(watched: Watch, small: Store) -> None:
    page = watched(small).open("/job", **JOB)
    figures = page.locator("details")
    figures.locator("summary").click()
    expect(figures).to_have_attribute("open", "")
    found = small.objects.get("TrainingRecurrence", NAMESPACE, RUNNING)
    body = running_recurrence(LONGEST, epoch="5", metric="0.92")
    small.objects.replace("TrainingRecurrence", NAMESPACE, RUNNING, body, expected_version=found.resource_version)
    expect(page.get_by_text("5 of at most 20")).to_be_visible(timeout=WAIT_MILLISECONDS)
    expect(figures).to_have_attribute("open", "")
    expect(page.locator(":focus")).to_have_text("Figures of the plot")


def test_a_page_that_the_server_could_not_read_is_read_again(watched: Watch, small: Store) -> None:
    tab = watched(small)
    page = tab.open("/job", **JOB)
    error = '<main id="content">The jobs cannot be read</main>'
    page.route(re.compile("/job[?]"), lambda route: route.fulfill(status=503, body=error), times=1)
    found = small.objects.get("TrainingRecurrence", NAMESPACE, RUNNING)
    body = running_recurrence(LONGEST, epoch="5", metric="0.92")
    with page.expect_response(lambda answer: answer.status == 503):
        small.objects.replace("TrainingRecurrence", NAMESPACE, RUNNING, body, expected_version=found.resource_version)
    expect(page.get_by_text("5 of at most 20")).to_be_visible(timeout=WAIT_MILLISECONDS)
    expect(page.locator("#live-state")).to_have_text("live")
    # Chromium itself tells of an answer 503.
    assert all("503" in text for text in tab.messages)
    tab.messages.clear()


@pytest.mark.parametrize("path", exhaustive_after(["/job", "/conditions"]))
def test_hostile_texts_are_texts(watched: Watch, hostile: Store, path: str) -> None:
    tab = watched(hostile)
    page = tab.open("/")
    expect(page.locator("tbody tr")).to_have_count(2)
    assert page.locator("main script").count() == 0
    shown = HOSTILE.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")
    expect(page.get_by_role("link", name=shown, exact=True)).to_be_visible()
    page = tab.open(path, namespace=NAMESPACE, name=HOSTILE)
    expect(page.get_by_role("heading", level=1)).to_contain_text(shown)
    assert page.locator("main script").count() == 0
    assert "{{ 7 * 7 }}" in page.locator("main").inner_text()


def test_every_view_shows_a_real_run(watched: Watch, tmp_path: Path) -> None:
    words = ["run", str(JOB_FILE), "--simulated-gpus", "1", "--recurrences", "1", "--output", str(tmp_path / "digits")]
    subprocess.run([WATTLOOP, *words], check=True, capture_output=True)
    with open_store(tmp_path / "digits" / "wattloop.db", create=False) as store:
        tab = watched(store)
        page = tab.open("/")
        expect(page.locator("tbody tr")).to_have_count(1)
        # Waits until the plots are drawn: a process that ends meanwhile is aborted by the library that draws.
        page = tab.open("/job", namespace="local", name="digits")
        expect(page.get_by_text("Attempts that ended")).to_be_visible()
        page = tab.open("/month")
        expect(page.locator("tbody tr")).to_have_count(2)
        expect(page.locator("main")).not_to_contain_text("unknown")
        page = tab.open("/cluster")
        expect(page.get_by_text("No attempt holds a GPU now.")).to_be_visible()


# test_page_routes.py has the pages and the search of fewer jobs.
@pytest.mark.exhaustive
def test_a_thousand_jobs_and_ten_thousand_recurrences_can_be_read(watched: Watch, tmp_path: Path) -> None:
    with make_database(tmp_path / "many.db", 1_000, 10_000) as store:
        tab = watched(store)
        page = tab.open("/")
        expect(page.locator(".count")).to_have_text("1000 jobs")
        page.get_by_role("link", name="Next").click()
        expect(page.locator(".pages span")).to_have_text("Page 2 of 20")
        page = tab.open("/job", **JOB)
        expect(page.locator("tbody tr").last).to_be_visible()
        expect(page.locator(".pages span")).to_have_text("Page 1 of 200")
        assert page.locator("*").count() < 5_000


def test_a_viewer_signs_in_sees_the_jobs_of_his_namespace_and_signs_out(context: BrowserContext) -> None:
    cluster = ReviewedCluster()
    with serving_viewers(cluster) as url:
        page = context.new_page()
        messages: list[str] = []
        page.on("console", lambda message: messages.append(message.text))
        page.goto(url)
        label = page.get_by_label("Token")
        assert [each["id"] for each in Axe().run(page).response["violations"] if each["impact"] in SERIOUS] == []
        label.fill("theirs")
        label.press("Enter")
        expect(page.get_by_role("link", name="theirs")).to_be_visible()
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page.locator("#live-state")).to_have_text("live")
        assert page.evaluate("document.cookie") == ""
        page.get_by_role("link", name="theirs").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("theirs")
        cluster.jobs = [each for each in cluster.jobs if each["metadata"]["name"] != "theirs"]
        cluster.now += 60
        expect(page.get_by_text("There is no such job")).to_be_visible(timeout=WAIT_MILLISECONDS)
        expect(page.locator("#live-state")).to_have_text("live")
        page.get_by_role("link", name="All jobs").last.click()
        page.get_by_role("link", name="GPUs").click()
        expect(page.get_by_text("No agent has reported").or_(page.get_by_text("may not list gpunodes"))).to_be_visible()
        # What no version has is read again after a time.
        with page.expect_response(re.compile("/cluster$"), timeout=WAIT_MILLISECONDS):
            page.evaluate("document.body.dataset.renewSeconds = 1")
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        page.goto(f"{url}/job?namespace={NAMESPACE}&name={LONGEST}")
        expect(page.get_by_label("Token")).to_be_visible()
        # Chromium names each response of 401 and 404, and says nothing else.
        assert [each for each in messages if "401" not in each and "404" not in each] == []
        page.close()
