"""Statuses of callbacks for Kubeflow Trainer, over HTTP."""

import json
from typing import Any

import pytest

from support.reporting.reporting_api import Api, Reply
from wattloop_operator.api.objective import Target
from wattloop_operator.api.reporting_source import Reporting, ReportingSource
from wattloop_operator.domain.progress import Progress

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
    progress = api.progress(name)
    assert progress is not None
    return progress


def test_the_metric_of_the_target_and_the_epoch_of_its_evaluation_are_the_progress(api: Api) -> None:
    progress = progress_after(
        api,
        status(0, total_steps=100),
        status(5, loss=0.7, current_step=12, current_epoch=0.12),
        status(10, loss=0.6, eval_accuracy=0.71, eval_runtime=0.5, epoch=1.0, current_epoch=1.3),
    )
    assert (str(progress.metric), str(progress.epoch), progress.process.evaluations) == ("0.71", "1", 1)
    assert progress.curve is not None
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
    assert (reply.code, reply.body) == (
        409,
        {"detail": f"team/{name} has the reporting source Push, expected KubeflowTrainer"},
    )


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
        assert progress is not None
        assert (str(progress.metric), progress.process.evaluations) == ("0.5", 1)
        sizes.add(len(progress.model_dump_json(exclude={"processes"})))
    assert max(sizes) - min(sizes) < 100
    reply = post(api, name, token, status(30, **{f"m{number}": 1.0 for number in range(257)}))
    assert reply.code == 422
    assert "trainerStatus.metrics" in str(reply.body)
