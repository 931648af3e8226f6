"""Databases with jobs, their page on the loopback interface, and Chromium."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext

from support.databases.many_jobs import (
    HOSTILE,
    LONGEST,
    NAMESPACE,
    RUNNING,
    SINCE,
    job_body,
    make_database,
    running_recurrence,
)
from support.databases.sample_record import RECORD
from support.live_page import ChromiumMissingError, running_browser, serving
from wattloop_operator.store.store import Store, open_store


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Store]:
    """A database without a job."""
    with open_store(tmp_path / "wattloop.db") as store:
        yield store


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Store]:
    """Three jobs, the first with three recurrences and a running attempt."""
    with make_database(tmp_path / "wattloop.db", 3, 3) as store:
        store.objects.create("TrainingRecurrence", NAMESPACE, RUNNING, running_recurrence(LONGEST))
        yield store


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Store]:
    """A job whose name, reasons and messages are markup, beside one with observations alone."""
    body = job_body(HOSTILE)
    ready = {"type": "Ready", "status": "False", "reason": "Crashed", "message": HOSTILE, "lastTransitionTime": SINCE}
    body["status"] = {**body["status"], "conditions": [ready], "failure": HOSTILE, "state": "Failing"}
    body["status"]["arms"] = [{"batchSize": 32, "observations": 1, "note": HOSTILE}]
    failed = running_recurrence(HOSTILE)
    failed["metadata"]["name"] = f"{HOSTILE}-00000"
    failed["status"] |= {"result": "Crashed", "message": f"{HOSTILE}\n{HOSTILE}"}
    record = dataclasses.replace(RECORD, namespace=NAMESPACE, job_uid=f"uid-{HOSTILE}", job_name=HOSTILE)
    with open_store(tmp_path / "wattloop.db") as store:
        store.objects.create("RecurringTrainingJob", NAMESPACE, HOSTILE, body)
        store.objects.create("TrainingRecurrence", NAMESPACE, f"{HOSTILE}-00000", failed)
        store.observations.record(dataclasses.replace(record, reason=HOSTILE, target_metric=HOSTILE))
        store.observations.record(dataclasses.replace(record, job_uid="other", job_name=f"{HOSTILE}2"))
        yield store


@pytest.fixture
def served() -> Iterator[Callable[[Store], str]]:
    """Serves the page of a store until the test ends; gives its URL."""
    opened = []

    def serve(store: Store) -> str:
        context = serving(store, "wattloop.db")
        opened.append(context)
        return context.__enter__()

    yield serve
    for each in reversed(opened):
        each.__exit__(None, None, None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for the tests of a file: while it runs, no other event loop can run in the thread."""
    try:
        with running_browser() as started:
            yield started
    except ChromiumMissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A new profile."""
    opened = browser.new_context(viewport={"width": 1280, "height": 900})
    yield opened
    opened.close()
