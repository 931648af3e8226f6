"""Errors of the reporting API over HTTP: their code and message, and that nothing is stored."""

import contextlib
import json
import socket
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from support.backends.model_backend import KEY, ModelBackend, job
from support.reporting.reporting_api import BODY, Api, running_api
from wattloop.wire import training_messages
from wattloop.wire.training_messages import GpuEnergy, LimitMeasurement, Report
from wattloop_operator.domain.progress import MAX_PROCESSES, Progress
from wattloop_operator.domain.snapshot import Failure, Snapshot
from wattloop_operator.driver import reconcile
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.rows import rows_of
from wattloop_operator.local.report_server import local_progress
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reporting.service import ReportService

GPU = {
    "uuid": "GPU-0",
    "start_energy_millijoules": 5,
    "energy_millijoules": 9,
    "start_time_seconds": 1.0,
    "time_seconds": 2.0,
}


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (None, "this run did not issue the token"),
        ("made-up", "this run did not issue the token"),
        ("größe", "this run did not issue the token"),
    ],
)
def test_an_unknown_token_is_rejected(api: Api, token: str | None, message: str) -> None:
    name, _ = api.recurrence()
    reply = api.post(name, None if token is None else token.encode().decode("latin-1"))
    assert (reply.code, reply.body) == (401, {"detail": message})
    assert reply.headers["www-authenticate"] == "Bearer"
    assert api.progress(name) is None


def test_an_authorization_scheme_other_than_bearer_is_rejected(api: Api) -> None:
    name, token = api.recurrence()
    assert api.post(name, None, Authorization=f"Basic {token}").code == 401


def test_the_token_of_another_recurrence_is_rejected(api: Api) -> None:
    name, _ = api.recurrence()
    _, other_token = api.recurrence()
    reply = api.post(name, other_token)
    assert (reply.code, reply.body) == (403, {"detail": f"the token is not that of team/{name}"})
    assert api.progress(name) is None
    assert api.ask(api.path(name, last="decision"), other_token).code == 403


def test_the_same_name_in_another_namespace_is_another_recurrence(api: Api) -> None:
    name, token = api.recurrence()
    assert api.ask(api.path(name, namespace="other"), token, json.dumps(BODY).encode()).code == 403


def test_a_deleted_recurrence_gives_404(api: Api) -> None:
    name, token = api.recurrence()
    api.store.objects.delete("TrainingRecurrence", "team", name)
    reply = api.post(name, token)
    assert (reply.code, reply.body) == (404, {"detail": f"TrainingRecurrence team/{name} does not exist"})


@pytest.mark.parametrize("name", ["UPPER", "a_b", "-a", "a" * 64, "..%2F..%2Fetc", "%00", "a%20b"])
def test_an_invalid_recurrence_name_is_rejected(api: Api, name: str) -> None:
    reply = api.ask(api.path(name), "x", json.dumps(BODY).encode())
    assert reply.code in (404, 422)
    assert isinstance(reply.body["detail"], str)


WRONG: dict[str, tuple[bytes | dict[str, Any], str]] = {
    "NaN": (
        b'{"process": "p", "sequence": 1, "epoch": 1, "metric": NaN}',
        "expected JSON: found NaN, expected a finite number",
    ),
    "infinity": (b'{"process": "p", "sequence": 1, "epoch": Infinity}', "found Infinity, expected a finite number"),
    "a number beyond floats": (
        b'{"process": "p", "sequence": 1, "epoch": 1e999}',
        "epoch: found inf, expected a finite number",
    ),
    "endless digits": (
        b'{"process": "p", "sequence": 1' + b"0" * 5000 + b', "epoch": 1}',
        "JSON: a whole number of more than 4300 digits",
    ),
    "deep nesting": (b"[" * 60_000, "expected JSON: lists or objects nested too deeply"),
    "deep nesting that ends": (b"[" * 30_000 + b"]" * 30_000, "expected"),
    "nothing": (b"", "expected JSON"),
    "no JSON": (b"sequence=1", "expected JSON"),
    "no text": (b"\xff\xfe\x00", "expected JSON"),
    "a list": (b"[]", "the message: found a list, expected an object"),
    "negative energy": ({"gpus": [GPU | {"energy_millijoules": 4}]}, "energy is never negative"),
    "too many GPUs": ({"gpus": [GPU | {"uuid": f"GPU-{index}"} for index in range(65)]}, "gpus: found 65 entries"),
    "the same GPU twice": ({"gpus": [GPU, GPU]}, "the same uuid twice"),
    "an unknown field": ({"loss": 1}, "found the unknown field 'loss', expected only process, sequence, epoch, metric"),
    "a boolean": ({"process": "p", "sequence": True}, "sequence: found True"),
    "a NUL": ({"gpu_product": "A\0B"}, "gpu_product: found 'A\\x00B'"),
    "half a character": (
        b'{"process": "p", "sequence": 1, "epoch": 1, "gpu_product": "\\ud800"}',
        "gpu_product: found '\\ud800'",
    ),
}


@pytest.mark.parametrize(("body", "message"), WRONG.values(), ids=WRONG.keys())
def test_an_invalid_body_is_rejected_with_its_field(api: Api, body: bytes | dict[str, Any], message: str) -> None:
    name, token = api.recurrence()
    reply = api.post(name, token, body if isinstance(body, bytes) else BODY | body)
    assert reply.code == 422
    assert message in reply.body["detail"]
    assert len(reply.body["detail"]) < 500
    assert api.progress(name) is None


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""])
def test_another_content_type_is_rejected(api: Api, content_type: str) -> None:
    name, token = api.recurrence()
    reply = api.post(name, token, Content_Type=content_type)
    assert (reply.code, reply.body) == (415, {"detail": "expected the content type application/json"})


def test_a_content_type_with_parameters_is_accepted(api: Api) -> None:
    name, token = api.recurrence()
    assert api.post(name, token, Content_Type="Application/JSON; charset=utf-8").code == 200


def answer_to(api: Api, name: str, head: str, body: bytes) -> bytes:
    """The answer to a request of which only the beginning is sent."""
    address = urlsplit(api.url)
    lines = f"POST {urlsplit(api.path(name)).path} HTTP/1.1\r\nHost: wattloop\r\nContent-Type: application/json\r\n"
    with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=60) as connection:
        connection.sendall(f"{lines}{head}\r\n\r\n".encode() + body)
        return connection.recv(65536)


def test_a_body_announced_as_ten_megabytes_is_rejected_unread(api: Api) -> None:
    name, token = api.recurrence()
    answer = answer_to(api, name, f"Authorization: Bearer {token}\r\nContent-Length: 10485760", b"")
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in answer.lower()


def test_a_report_of_an_unauthorized_caller_is_rejected_unread(api: Api) -> None:
    name, _ = api.recurrence()
    answer = answer_to(api, name, "Authorization: Bearer stranger\r\nContent-Length: 60000", b"")
    assert answer.startswith(b"HTTP/1.1 401")


def test_a_body_without_a_length_is_refused(api: Api) -> None:
    name, token = api.recurrence()
    answer = answer_to(api, name, f"Authorization: Bearer {token}\r\nTransfer-Encoding: chunked", b"2\r\n{}\r\n")
    assert answer.startswith(b"HTTP/1.1 411")
    assert b"connection: close" in answer.lower()


def test_a_body_of_the_maximum_size_is_accepted(api: Api) -> None:
    name, token = api.recurrence()
    body = json.dumps(BODY).encode()
    assert api.post(name, token, body + b" " * (64 * 1024 - len(body))).code == 200
    assert api.post(name, token, body + b" " * (64 * 1024 - len(body) + 1)).code == 413


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/", "/v1", "/metrics"])
def test_other_paths_give_404(api: Api, path: str) -> None:
    assert api.ask(api.url + path, None).code == 404


def test_a_failing_database_gives_503_with_retry_after(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        name, token = api.recurrence()
        with contextlib.closing(sqlite3.connect(tmp_path / "wattloop.db")) as other:
            other.execute("DROP TABLE objects")
        reply = api.post(name, token)
    assert reply.code == 503
    assert reply.headers["retry-after"] == "5"
    assert "wattloop.db: cannot read TrainingRecurrence team/" in reply.body["detail"]


AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
TARGET = {"metric": "accuracy", "threshold": "0.9", "consecutiveEvaluations": 2}
DECIDED = decide(Snapshot(job(objective={"target": TARGET, "maxEpochs": 50})), Attempt(0, 0, "slot", AT))
# Of each report: the epochs since the one before, and the metric if there was an evaluation.
STEPS = st.lists(st.tuples(st.sampled_from([0.0, 0.25, 1.0]), st.none() | st.floats(0, 1)), min_size=1, max_size=12)


def reports_of(process: str, steps: Sequence[tuple[float, float | None]]) -> list[Report]:
    """The reports of a process, of which the first one tells that it has begun."""
    reports = [Report(process, 1, 0.0)]
    for step, metric in steps:
        before = reports[-1]
        report = replace(before, sequence=before.sequence + 1, epoch=before.epoch + step)
        if metric is not None:
            report = replace(report, metric=metric, evaluations=before.evaluations + 1)
        reports.append(report)
    return [*reports, replace(reports[-1], sequence=reports[-1].sequence + 1, finished=True)]


def progress_of(reports: Sequence[Report]) -> Progress:
    recurrence = DECIDED
    for report in reports:
        # As it is read again after a write.
        progress = Progress.from_wire(progress_after(recurrence, report).to_wire())
        recurrence = recurrence.model_copy(update={"progress": progress})
    return recurrence.progress


@given(STEPS, STEPS, st.data())
def test_any_interleaving_of_two_processes_with_late_repetitions_gives_the_result_of_the_order(
    earlier: list[tuple[float, float | None]], later: list[tuple[float, float | None]], data: st.DataObject
) -> None:
    first, second = reports_of("first", earlier), reports_of("second", later)
    waiting = {"first": iter(first[1:]), "second": iter(second)}
    arrived = [first[0]]
    for name in data.draw(st.permutations(["first"] * (len(first) - 1) + ["second"] * len(second))):
        arrived.append(next(waiting[name]))
        arrived += data.draw(st.lists(st.sampled_from(arrived), max_size=2))
    assert progress_of(arrived) == progress_of([*first, *second])


def test_the_epochs_of_ever_more_processes_add_up_in_bounded_size() -> None:
    # A part of an epoch that decimals cannot represent.
    count, epochs = MAX_PROCESSES + 4, 2 / 3
    progress = progress_of(
        [Report(str(process), number, epoch) for process in range(count) for number, epoch in ((1, 0.0), (2, epochs))]
    )
    assert float(progress.epoch or 0) == pytest.approx(count * epochs)
    assert len(progress.processes) == MAX_PROCESSES
    assert progress.process.id == str(count - 1)


def test_a_process_that_is_started_again_after_the_clock_was_set_back_reaches_the_target(api: Api) -> None:
    def clock() -> Iterator[datetime]:
        yield from (AT + timedelta(minutes=minute) for minute in range(2))
        yield from (AT + timedelta(minutes=minute, hours=-1) for minute in range(30))

    times = clock()
    service = ReportService(local_progress(api.store, lambda: None), api.tokens, utc_now=lambda: next(times))
    name, _ = api.recurrence(progress_deadline_seconds=600)
    for report in (Report("a", 1, 0.0), Report("a", 2, 1.0, metric=0.6, evaluations=1)):
        service.receive("team", name, report)
    for epoch in range(30):
        metric = None if epoch == 0 else 0.6 + 0.39 * epoch / 29
        service.receive("team", name, Report("b", epoch + 1, float(epoch), metric=metric, evaluations=epoch))
    progress = api.progress(name)
    assert (progress.epoch, float(progress.metric or 0), progress.reached) == (30, 0.99, True)


def numbers(minimum: float, maximum: float) -> st.SearchStrategy[float]:
    """The bounds, numbers near them, and usual numbers."""
    usual = [value for value in (0.0, 0.5, 1.0, 400.0) if minimum <= value <= maximum]
    return st.sampled_from([minimum, maximum, maximum / 3, *usual]) | st.floats(minimum, maximum)


@st.composite
def gpus(draw: st.DrawFn) -> GpuEnergy:
    counter = st.sampled_from([0, 1, training_messages.MAX_ENERGY_MILLIJOULES]) | st.integers(0, 10**9)
    energy = sorted(draw(st.tuples(counter, counter)))
    clock = sorted(draw(st.tuples(*[numbers(0, training_messages.MAX_TIME_SECONDS)] * 2)))
    return GpuEnergy(
        draw(st.sampled_from(["GPU-0", "GPU-1", f"MIG-GPU-{'f' * 36}/127/127"])),
        energy[0],
        energy[1],
        clock[0],
        clock[1],
    )


LIMITS = st.builds(
    LimitMeasurement,
    numbers(1, training_messages.MAX_LIMIT_WATTS),
    numbers(training_messages.MIN_MEASURED, training_messages.MAX_NUMBER),
    numbers(training_messages.MIN_MEASURED, training_messages.MAX_TIME_SECONDS),
    numbers(training_messages.MIN_MEASURED, training_messages.MAX_NUMBER),
)
REPORTS = st.builds(
    Report,
    process=st.sampled_from("ab"),
    sequence=st.integers(1, 5) | st.just(2**63 - 1),
    epoch=numbers(0, training_messages.MAX_NUMBER),
    metric=st.none() | numbers(-training_messages.MAX_NUMBER, training_messages.MAX_NUMBER),
    evaluations=st.integers(0, 5) | st.just(2**63 - 1),
    consecutive_reached=st.none() | st.integers(0, 5) | st.just(2**63 - 1),
    gpus=st.lists(gpus(), max_size=3, unique_by=lambda gpu: gpu.uuid).map(tuple),
    gpu_product=st.sampled_from(["", "NVIDIA A100", "~" * training_messages.MAX_PRODUCT_CHARACTERS]),
    max_power_limit_watts=numbers(0, training_messages.MAX_POWER_WATTS),
    power_limit_watts=st.none() | numbers(0, training_messages.MAX_LIMIT_WATTS),
    power_limit_refusal=st.sampled_from(["", "~" * training_messages.MAX_REFUSAL_CHARACTERS]),
    profile=st.lists(LIMITS, max_size=3, unique_by=lambda limit: round(limit.power_limit_watts)).map(tuple),
    finished=st.booleans(),
    rank=st.integers(0, 2),
)


@settings(deadline=None, max_examples=settings().max_examples // 4, phases=[Phase.explicit, Phase.generate])
@given(st.lists(st.lists(REPORTS, max_size=3), min_size=1, max_size=3), st.sampled_from([None, *Failure]))
def test_no_accepted_report_breaks_the_reconciler(reports: list[list[Report]], failure: Failure | None) -> None:
    backend = ModelBackend(job())
    backend.advance(3600)
    reconcile(backend, KEY, backend.clock)
    for of_attempt in reports:
        (name,) = backend.running
        backend.run_workload(name)
        for sent in of_attempt:
            report = Report.from_json(json.loads(json.dumps(sent.to_json())))
            recurrence = backend.recurrences[name]
            backend.merge(recurrence, progress_after(recurrence, report))
            reconcile(backend, KEY, backend.clock)
        if name in backend.running:
            backend.end_workload(name, failure)
        reconcile(backend, KEY, backend.clock)
        assert name in backend.outcomes
        backend.advance(3600)
        reconcile(backend, KEY, backend.clock)
        if not backend.running:  # every batch size has crashed too often
            return
    assert len(rows_of(JobHistory.of_snapshot(backend.state))) == len(reports)
