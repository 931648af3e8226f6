"""Health, metrics and logs of the operator."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest, make_asgi_app

from wattloop.commands.settings import Address
from wattloop.errors import OperationError
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.cluster.api_transport import Request, StatusError, UnavailableError
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.telemetry.health import WatchHeartbeat, create_health_app, watches_check
from wattloop_operator.telemetry.operator_logs import set_up_logs
from wattloop_operator.telemetry.operator_metrics import Metrics, StateCollector


@pytest.fixture
def ages() -> dict[str, float]:
    return {"Job": 1.0, "Pod": 1.0}


@pytest.fixture
def health(ages: dict[str, float]) -> Iterator[HttpService]:
    live = {"watches": watches_check(lambda: ages, 100.0)}
    service = HttpService(
        "health", create_health_app(live, live | {"database": lambda: "away"}), Address("127.0.0.1", 0)
    )
    service.start()
    yield service
    service.stop()


def test_health_names_the_watch_without_a_recent_sign_of_life(health: HttpService, ages: dict[str, float]) -> None:
    assert httpx.get(f"{health.url}/healthz").json() == {"watches": "ok"}
    ages["Pod"] = 101.0
    response = httpx.get(f"{health.url}/healthz")
    assert response.status_code == 503
    assert response.json() == {"watches": "no sign of life of the watch of Pod for 101 s"}


def test_readiness_requires_every_check_to_pass(health: HttpService) -> None:
    response = httpx.get(f"{health.url}/readyz")
    assert (response.status_code, response.json()) == (503, {"watches": "ok", "database": "away"})


def test_a_check_can_be_left_out(health: HttpService) -> None:
    response = httpx.get(f"{health.url}/readyz?exclude=database&exclude=unknown")
    assert (response.status_code, response.json()) == (200, {"watches": "ok"})


def test_an_address_in_use_is_an_error(health: HttpService) -> None:
    with pytest.raises(OperationError, match=f"metrics: cannot listen on {health.address}"):
        HttpService("metrics", make_asgi_app(), health.address)


def test_a_watch_ages_until_its_next_sign_of_life() -> None:
    now = [10.0]
    heartbeat = WatchHeartbeat(["Job", "Pod"], lambda: now[0])
    now[0] = 15.0
    heartbeat.beat("Job")
    now[0] = 16.0
    assert heartbeat.ages_seconds() == {"Job": 1.0, "Pod": 6.0}


def test_requests_are_counted_by_outcome() -> None:
    metrics = Metrics()
    errors: dict[str, Exception] = {
        "/apis/batch/v1/namespaces/team/jobs": OperationError("away"),
        "/api/v1/namespaces/team/services": UnavailableError("too many requests", 429),
    }

    def send(request: Request) -> dict[str, Any]:
        if request.method == "PATCH":
            raise StatusError(request, 409, "Conflict", "")
        if request.path in errors:
            raise errors[request.path]
        return {}

    counted = metrics.count_requests(send)
    counted(Request("GET", "/api/v1/namespaces/team/pods/a"))
    for path in errors:
        with pytest.raises(OperationError):
            counted(Request("POST", path))
    with pytest.raises(StatusError):
        counted(Request("PATCH", "/apis/wattloop.dev/v1alpha1/namespaces/team/trainingrecurrences/a/status"))
    text = generate_latest(metrics.registry).decode()
    for line in (
        'wattloop_operator_api_requests_total{method="GET",outcome="ok",resource="pods"} 1.0',
        'wattloop_operator_api_requests_total{method="POST",outcome="unreachable",resource="jobs"} 1.0',
        'wattloop_operator_api_requests_total{method="POST",outcome="429",resource="services"} 1.0',
        'wattloop_operator_api_requests_total{method="PATCH",outcome="409",resource="trainingrecurrences"} 1.0',
    ):
        assert line in text


def test_the_metrics_of_a_job_are_those_of_its_status() -> None:
    job = RecurringTrainingJob.from_wire(
        {
            "metadata": {"name": "digits", "namespace": "team"},
            "spec": {
                "objective": {"target": {"metric": "accuracy", "threshold": "0.9"}},
                "batchSize": {"default": 64, "candidates": [64]},
                "template": {"spec": {"template": {"spec": {"containers": [{"name": "train"}]}}}},
            },
            "status": {
                "active": ["digits-0-0"],
                "best": {"batchSize": 64},
                "totals": {"reached": 5, "failed": 2, "lost": 1, "gpuEnergyJoules": "4000", "durationSeconds": "20"},
                "savings": [
                    {"name": "Energy", "value": "-300", "low": "-500", "high": "-90", "unit": "J", "text": ""},
                    {"name": "Time", "value": "12", "unit": "s", "text": ""},
                    {"name": "Cost", "value": "-25", "unit": "percent", "text": ""},
                    {"name": "LearningEnergy", "value": "700", "unit": "J", "text": ""},
                    {"name": "DefaultCost", "value": "900", "unit": "J", "text": ""},
                ],
            },
        }
    )
    registry = CollectorRegistry()
    registry.register(
        StateCollector(
            jobs=lambda: [job],
            queue_depth=lambda: 3,
            watch_ages_seconds=lambda: {"Job": 2.0},
            is_leader=lambda: True,
            is_database_up=lambda: False,
        )
    )
    text = generate_latest(registry).decode()
    for line in (
        'wattloop_job_active_recurrences{job="digits",namespace="team"} 1.0',
        'wattloop_job_best_batch_size{job="digits",namespace="team"} 64.0',
        'wattloop_job_recurrences_total{job="digits",namespace="team",reached="false"} 2.0',
        'wattloop_job_lost_recurrences{job="digits",namespace="team"} 1.0',
        'wattloop_job_gpu_energy_joules_total{job="digits",namespace="team"} 4000.0',
        'wattloop_job_time_seconds_total{job="digits",namespace="team"} 20.0',
        'wattloop_job_saved_energy_joules{job="digits",namespace="team"} -300.0',
        'wattloop_job_low_saved_energy_joules{job="digits",namespace="team"} -500.0',
        'wattloop_job_high_saved_energy_joules{job="digits",namespace="team"} -90.0',
        'wattloop_job_saved_time_seconds{job="digits",namespace="team"} 12.0',
        'wattloop_job_saved_cost_ratio{job="digits",namespace="team"} -0.25',
        'wattloop_job_learning_energy_joules{job="digits",namespace="team"} 700.0',
        "wattloop_operator_work_queue_depth 3.0",
        'wattloop_operator_watch_age_seconds{kind="Job"} 2.0',
        "wattloop_operator_is_leader 1.0",
        "wattloop_operator_database_up 0.0",
    ):
        assert line in text


@pytest.mark.usefixtures("restored_logging")
def test_a_json_line_has_time_level_and_message(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("json", "info")
    logging.getLogger("wattloop_operator.test").info("team/digits: %s", "started")
    logging.getLogger("wattloop_operator.test").debug("unseen")
    (line,) = [json.loads(text) for text in capsys.readouterr().err.splitlines()]
    assert (line["level"], line["logger"]) == ("INFO", "wattloop_operator.test")
    assert line["message"] == "team/digits: started"
    assert line["time"].startswith("20")


@pytest.mark.usefixtures("restored_logging")
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_foreign_name_in_a_message_neither_forges_a_line_nor_controls_the_terminal(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logs(form, "info")
    logging.getLogger("wattloop_operator.test").info("pod %s", "x\nERROR forged\x1b[2J\u202e\u2028")
    (line,) = capsys.readouterr().err.split("\n")[:-1]
    assert line.isprintable()
    assert "forged" in line
