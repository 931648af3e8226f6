"""Progress over HTTP: reports that are late, repeated, reordered or concurrent."""

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import inspect, text

from support.reporting.reporting_api import BODY, Api, Reply
from wattloop.errors import OperationError
from wattloop.wire.training_messages import Answer, Report
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.objective import Target
from wattloop_operator.api.reporting_source import Reporting, ReportingSource
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.local.report_server import local_progress
from wattloop_operator.reconcile.energy.attempt_usage import usage_of
from wattloop_operator.reporting.service import ReportService


def gpu(index: int, joules: float, seconds: float) -> dict[str, Any]:
    return {
        "uuid": f"GPU-{index:02}",
        "start_energy_millijoules": 5000,
        "energy_millijoules": 5000 + round(joules * 1000),
        "start_time_seconds": 100.0,
        "time_seconds": 100.0 + seconds,
    }


def body(sequence: int, **changes: Any) -> dict[str, Any]:
    """The sequence-th report of a process; each adds an epoch, an evaluation and 1000 J."""
    return {
        "process": "first",
        "sequence": sequence,
        "epoch": float(sequence),
        "metric": sequence / 10,
        "evaluations": sequence,
        "gpus": [gpu(0, 1000.0 * sequence, 10.0 * sequence)],
        "gpu_product": "NVIDIA A100",
        "max_power_limit_watts": 400.0,
        **changes,
    }


def test_a_report_is_stored_before_it_is_answered(api: Api) -> None:
    name, token = api.recurrence()
    reply = api.post(name, token, body(2))
    assert (reply.code, Answer.from_json(reply.body)) == (200, Answer())
    progress = api.progress(name)
    assert (progress.process.sequence, progress.epoch, progress.metric) == (2, 2, Decimal("0.2"))
    assert progress.process.evaluations == 2
    assert progress.max_power_limit_watts == 400
    assert [reading.energy_millijoules for reading in progress.gpus] == [2_005_000]
    assert api.woken


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3))))
def test_the_newest_report_counts_in_any_order(api: Api, order: tuple[int, ...]) -> None:
    name, token = api.recurrence()
    for sequence in (*order, *order):
        assert api.post(name, token, body(sequence)).code == 200
    progress = api.progress(name)
    assert (progress.process.sequence, progress.epoch, progress.metric) == (3, 3, Decimal("0.3"))
    assert progress.process.evaluations == 3
    assert [reading.energy_millijoules for reading in progress.gpus] == [3_005_000]


@pytest.mark.parametrize("field", ["energy_millijoules", "time_seconds"])
def test_a_counter_or_a_clock_below_its_start_is_refused_with_its_field(api: Api, field: str) -> None:
    name, token = api.recurrence()
    reply = api.post(name, token, body(1, gpus=[gpu(0, 1000.0, 10.0) | {field: 1}]))
    assert reply.code == 422
    assert f"gpus[0].{field}: found 1" in str(reply.body)
    assert api.progress(name) is None


@pytest.mark.parametrize(
    "steps",
    [
        [(9e10, 10.0), (2000.0, 20.0)],
        [(1000.0, 9e9), (2000.0, 20.0)],
        [(1000.0, 10.0), (0.0, 5.0), (2000.0, 20.0), (500.0, 2.0)],
    ],
    ids=["the counter jumps and falls", "the clock jumps and falls", "both run backwards"],
)
def test_energy_and_time_never_fall_whatever_counters_and_clocks_do(api: Api, steps: list[tuple[float, float]]) -> None:
    name, token = api.recurrence()
    before = (0, 0.0)
    for number, (joules, seconds) in enumerate(steps, start=1):
        assert api.post(name, token, body(number, gpus=[gpu(0, joules, seconds)])).code == 200
        progress = api.progress(name)
        assert progress.process.sequence == number, "the report's metric counts"
        (reading,) = progress.gpus
        after = (reading.energy_millijoules, float(reading.time_seconds))
        assert after >= before
        assert after[1] >= before[1]
        before = after
        usage = usage_of(progress)
        assert usage.gpu_energy_joules >= 0 <= usage.duration_seconds


def test_a_repeated_report_writes_nothing(api: Api) -> None:
    name, token = api.recurrence()
    api.post(name, token, body(1))
    before = api.read(name).progress_version
    api.post(name, token, body(1))
    assert api.read(name).progress_version == before


def test_a_report_after_the_end_is_answered_with_stop_and_changes_nothing(api: Api) -> None:
    name, token = api.recurrence()
    api.post(name, token, body(1))
    api.write_status(name, result=Result.DEADLINE_EXCEEDED, message="still running at activeDeadlineSeconds; " * 100)
    reply = api.post(name, token, body(2))
    assert reply.body["stop"] is True
    assert reply.body["reason"].startswith("the attempt has ended: still running at activeDeadlineSeconds")
    assert len(reply.body["reason"]) <= 2000
    assert api.progress(name).process.sequence == 1


@pytest.mark.parametrize("ended", [False, True])
def test_reports_add_no_row_to_any_table_but_the_first_that_of_its_attempt(api: Api, ended: bool) -> None:
    name, token = api.recurrence()
    if ended:
        api.write_status(name, result=Result.REACHED, message="reached")
    before = rows_by_table(api)
    for sequence in range(1, 6):
        gpus = [gpu(10 * sequence + index, 1000.0, 10.0 * sequence) for index in range(10)]
        assert api.post(name, token, body(sequence, gpus=gpus)).code == 200
    before["attempt_progress"] += 0 if ended else 1
    assert rows_by_table(api) == before


def rows_by_table(api: Api) -> dict[str, int]:
    with api.store._database.reading("count the rows of every table") as on:
        names = inspect(on).get_table_names()
        return {name: on.execute(text(f"SELECT count(*) FROM {name}")).scalar_one() for name in names}


def test_a_run_beyond_its_cost_limit_is_answered_with_stop_each_time(api: Api) -> None:
    name, token = api.recurrence(stop_cost_joules=Decimal(5000))
    replies = [api.post(name, token, body(sequence)).body["stop"] for sequence in (1, 2, 3, 2, 4)]
    # Half of the energy and half of 400 W times the time: 2500 J per report.
    assert replies == [False, True, True, True, True]


def test_reaching_the_target_counts_at_any_cost(api: Api) -> None:
    name, token = api.recurrence(stop_cost_joules=Decimal(5000))
    assert api.post(name, token, body(9, metric=0.95)).body["stop"] is False
    assert api.progress(name).reached


@pytest.mark.parametrize(("counted", "reached"), [(2, True), (1, False), (None, False)])
def test_evaluations_in_a_row_survive_a_lost_report(api: Api, counted: int | None, reached: bool) -> None:
    name, token = api.recurrence()
    target = api.read(name).spec.target.model_copy(update={"consecutive_evaluations": 2})
    name, token = api.recurrence(target=target)
    api.post(name, token, body(1, consecutive_reached=0))
    # Report 2, whose metric reached the target too, was lost.
    api.post(name, token, body(3, metric=0.95, consecutive_reached=counted))
    assert api.progress(name).reached is reached


def test_evaluations_in_a_row_are_at_most_the_evaluations(api: Api) -> None:
    name, _ = api.recurrence()
    target = api.read(name).spec.target.model_copy(update={"consecutive_evaluations": 3})
    name, token = api.recurrence(target=target)
    api.post(name, token, body(2, metric=0.95, consecutive_reached=100))
    progress = api.progress(name)
    assert (progress.process.consecutive_reached, progress.reached) == (2, False)


@pytest.mark.parametrize("first_epoch", [0, 1, 3])
def test_the_first_report_of_a_restarted_process_counts_and_reaches_the_target(api: Api, first_epoch: int) -> None:
    name, token = api.recurrence()
    for sequence in range(1, 6):
        api.post(name, token, body(sequence))
    for epoch in range(first_epoch, 4):
        # It starts at epoch 0 without a metric and with no evaluations; the GPU's counter
        # continues.
        changes = {"metric": None} if epoch == 0 else {"metric": 0.95 if epoch == 3 else 0.5}
        energy = [gpu(0, 5000.0 + 1000.0 * epoch, 60.0 + 10.0 * epoch)]
        report = body(1 + epoch, process="second", epoch=float(epoch), evaluations=epoch, gpus=energy, **changes)
        assert api.post(name, token, report).code == 200
    progress = api.progress(name)
    assert (progress.reached, progress.metric, progress.process.evaluations) == (True, Decimal("0.95"), 3)
    assert [each.epoch for each in progress.processes] == [5, 3]
    assert progress.epoch == 8
    assert [(each.start_energy_millijoules, each.energy_millijoules) for each in progress.gpus] == [(5000, 8_005_000)]


def test_a_restarted_process_starts_a_new_row_of_evaluations(api: Api) -> None:
    name, _ = api.recurrence()
    target = api.read(name).spec.target.model_copy(update={"consecutive_evaluations": 3})
    name, token = api.recurrence(target=target)
    for sequence in (1, 2):
        api.post(name, token, body(sequence, metric=0.95))
    again = body(1, process="second", metric=0.95, consecutive_reached=100, gpus=[])
    assert api.post(name, token, again).code == 200
    progress = api.progress(name)
    assert (progress.process.consecutive_reached, progress.reached) == (1, False)


def test_concurrent_reports_of_several_processes_are_all_merged(api: Api) -> None:
    name, token = api.recurrence()
    ranks, reports = 8, 4

    def report(rank: int) -> list[int]:
        return [
            api.post(
                name,
                token,
                body(sequence, rank=rank, gpus=[gpu(rank, 1000.0 * sequence, 10.0 * sequence)], metric=rank / 10),
            ).code
            for sequence in range(1, reports + 1)
        ]

    with ThreadPoolExecutor(ranks) as threads:
        codes = list(threads.map(report, range(ranks)))
    assert codes == [[200] * reports] * ranks
    progress = api.progress(name)
    assert [reading.uuid for reading in progress.gpus] == [f"GPU-{rank:02}" for rank in range(ranks)]
    assert {reading.energy_millijoules for reading in progress.gpus} == {5000 + reports * 1_000_000}
    # The metric is that of rank 0, and the maximum power that of all GPUs.
    assert (progress.metric, progress.max_power_limit_watts) == (0, 400 * ranks)


def test_a_report_is_stored_even_if_the_early_stop_cannot_be_decided(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    name, _ = api.recurrence(profile_power_limits=False)

    def fail(recurrence: TrainingAttempt, progress: Progress) -> Progress:
        raise OperationError("the database is away")

    service = ReportService(local_progress(api.store, lambda: None), api.tokens, fail)
    assert service.receive("team", name, Report.from_json(body(1))).stop is False
    assert api.progress(name).process.sequence == 1
    assert f"team/{name}: the early stop cannot be decided now: the database is away" in caplog.text


def test_the_decision_can_be_read(api: Api) -> None:
    name, token = api.recurrence(power_limit_watts=300)
    reply = api.ask(api.path(name, last="decision"), token)
    assert reply.code == 200
    spec = api.read(name).spec
    assert reply.body == {
        "batch_size": spec.batch_size,
        "power_limit_watts": 300,
        "parameters": spec.parameters,
        "profile_power_limits": spec.profile_power_limits,
        "max_epochs": 50,
        "reason": spec.decision.reason,
    }


def test_a_report_with_only_the_required_fields_is_accepted(api: Api) -> None:
    name, token = api.recurrence()
    assert api.post(name, token, BODY).code == 200


def test_every_report_is_a_heartbeat_of_its_rank_at_the_time_of_its_arrival(api: Api) -> None:
    name, _ = api.recurrence(progress_deadline_seconds=600)
    moment = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
    arrivals = [moment, moment + timedelta(seconds=9), moment + timedelta(seconds=20)]
    remaining = iter(arrivals)
    service = ReportService(local_progress(api.store, lambda: None), api.tokens, utc_now=lambda: next(remaining))
    for rank, sequence in ((0, 5), (2, 1), (0, 5)):
        service.receive("team", name, Report.from_json(body(sequence, rank=rank)))
    progress = api.progress(name)
    assert progress.last_report_time == arrivals[2].replace(microsecond=0)
    assert [(each.rank, each.time) for each in progress.heartbeats] == [
        (0, arrivals[2].replace(microsecond=0)),
        (2, arrivals[1].replace(microsecond=0)),
    ]


KUBEFLOW = Reporting(source=ReportingSource.KUBEFLOW_TRAINER)
TARGET = Target.model_validate({"metric": "eval_accuracy", "threshold": "0.9", "consecutiveEvaluations": 2})


def status(second: int, **metrics: Any) -> dict[str, Any]:
    """As transformers' callback makes it."""
    return {
        "trainerStatus": {
            "lastUpdatedTime": f"2026-03-01T12:00:{second:02}.250000+00:00",
            "progressPercentage": 10,
            "estimatedRemainingSeconds": 100,
            "metrics": [{"name": name, "value": str(value)} for name, value in metrics.items()],
        }
    }


def post(api: Api, name: str, token: str | None, body: object) -> Reply:
    return api.ask(api.path(name, last="trainer-status"), token, json.dumps(body).encode())


def progress_after(api: Api, *statuses: dict[str, Any], **changes: Any) -> Progress:
    name, token = api.recurrence(**{"reporting": KUBEFLOW, "target": TARGET, **changes})
    for each in statuses:
        assert post(api, name, token, each).code == 200
    return api.progress(name)


def test_the_metric_of_the_target_and_the_epoch_of_its_evaluation_are_the_progress(api: Api) -> None:
    progress = progress_after(
        api,
        status(0, total_steps=100),
        status(5, loss=0.7, current_step=12, current_epoch=0.12),
        status(10, loss=0.6, eval_accuracy=0.71, eval_runtime=0.5, epoch=1.0, current_epoch=1.3),
    )
    assert (str(progress.metric), str(progress.epoch), progress.process.evaluations) == ("0.71", "1", 1)
    assert (progress.curve.epochs, progress.curve.metrics) == ((1.0,), (0.71,))


def test_an_evaluation_that_is_repeated_in_later_statuses_counts_once_and_an_equal_one_counts_again(api: Api) -> None:
    first = {"eval_accuracy": 0.95, "eval_runtime": 0.5, "epoch": 1.0}
    progress = progress_after(api, status(5, **first), status(10, **first, loss=0.1, current_epoch=1.7))
    assert (progress.process.evaluations, progress.reached) == (1, False)
    second = first | {"eval_runtime": 0.51, "epoch": 2.0}
    progress = progress_after(api, status(5, **first), status(10, **second))
    assert (progress.process.evaluations, progress.reached) == (2, True)


def test_a_late_status_changes_nothing(api: Api) -> None:
    progress = progress_after(api, status(10, eval_accuracy=0.8, epoch=2.0), status(5, eval_accuracy=0.7, epoch=1.0))
    assert (str(progress.metric), str(progress.epoch)) == ("0.8", "2")


def test_a_status_with_more_epochs_counts_after_the_clock_was_set_back(api: Api) -> None:
    progress = progress_after(api, status(10, eval_accuracy=0.7, epoch=1.0), status(5, eval_accuracy=0.8, epoch=2.0))
    assert (str(progress.metric), str(progress.epoch)) == ("0.8", "2")


def test_a_metric_that_is_not_a_number_has_diverged_and_stops_the_attempt(api: Api) -> None:
    progress = progress_after(api, status(5, eval_accuracy=float("nan"), epoch=1.0))
    assert (progress.diverged, progress.stop_requested) == (True, True)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "trainerStatus: found nothing"),
        ({"trainerStatus": {"metrics": []}}, "trainerStatus.lastUpdatedTime"),
        ({"trainerStatus": {"lastUpdatedTime": "yesterday"}}, "expected a time with its zone"),
        ({"trainerStatus": {"lastUpdatedTime": "2026-02-30T12:00:00Z"}}, "expected a date of the calendar"),
        (status(5) | {"trainerStatus": {**status(5)["trainerStatus"], "metrics": [{"name": "a"}]}}, "metrics[0].value"),
    ],
)
def test_an_invalid_status_is_rejected_with_its_field(api: Api, body: dict[str, Any], message: str) -> None:
    name, token = api.recurrence(reporting=KUBEFLOW)
    reply = post(api, name, token, body)
    assert reply.code == 422
    assert message in reply.body["detail"]
    assert api.progress(name) is None


def test_an_attempt_of_another_source_takes_no_status(api: Api) -> None:
    name, token = api.recurrence()
    reply = post(api, name, token, status(5, eval_accuracy=0.9))
    assert reply.code == 409
    assert reply.body == {"detail": f"team/{name} has the reporting source Push, expected KubeflowTrainer"}


def test_a_status_needs_the_token_of_its_recurrence(api: Api) -> None:
    name, _ = api.recurrence(reporting=KUBEFLOW)
    _, other = api.recurrence(reporting=KUBEFLOW)
    assert post(api, name, None, status(5)).code == 401
    assert post(api, name, other, status(5)).code == 403


def test_ever_other_names_of_metrics_leave_a_progress_of_one_size_and_too_many_at_once_are_refused(api: Api) -> None:
    name, token = api.recurrence(reporting=KUBEFLOW, target=TARGET)
    sizes = set()
    for second in range(20):
        names = {f"{'m' * 100}{second:03}-{number:03}": 1.0 for number in range(255)}
        assert post(api, name, token, status(second, eval_accuracy=0.5, **names)).code == 200
        progress = api.progress(name)
        assert (str(progress.metric), progress.process.evaluations) == ("0.5", 1)
        sizes.add(len(progress.model_dump_json(exclude={"processes"})))
    assert max(sizes) - min(sizes) < 100
    reply = post(api, name, token, status(30, **{f"m{number}": 1.0 for number in range(257)}))
    assert reply.code == 422
    assert "trainerStatus.metrics" in str(reply.body)
