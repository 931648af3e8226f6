"""`wattloop.Run` outside and inside Wattloop, with a reachable and an unreachable operator."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.reporting.report_server import ReportServer, answering
from wattloop import Run
from wattloop.errors import InputError

CLIENT = Path(__file__).parents[3] / "client"
SCRIPT = """
import sys
import wattloop
with wattloop.Run(batch_size=64, max_epochs=3) as run:
    for epoch in run.epochs():
        run.step()
        run.report(metric=epoch / 10)
        print(epoch, run.batch_size, run.per_device_batch_size, run.learning_rate_scale, run.seed, run.stopped)
print(sorted(name for name in sys.modules if name.partition(".")[0] in {"numpy", "pynvml", "pydantic", "rich"}))
"""


def variables(url: str, **others: str) -> dict[str, str]:
    """The environment variables of a run."""
    return {
        "WATTLOOP_JOB": "team/digits",
        "WATTLOOP_RECURRENCE": "digits-0",
        "WATTLOOP_BATCH_SIZE": "256",
        "WATTLOOP_PER_DEVICE_BATCH_SIZE": "128",
        "WATTLOOP_LEARNING_RATE_SCALE": "2.0",
        "WATTLOOP_MAX_EPOCHS": "5",
        "WATTLOOP_TARGET_METRIC": "accuracy",
        "WATTLOOP_TARGET_THRESHOLD": "0.9",
        "WATTLOOP_REPORT_URL": url,
        **others,
    }


def test_a_script_outside_wattloop_needs_only_the_standard_library() -> None:
    # -S excludes installed packages and -I the environment.
    code = f"import sys; sys.path.insert(0, {str(CLIENT)!r})\n{SCRIPT}"
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [*(f"{epoch} 64 64 1.0 0 False" for epoch in range(3)), "[]"]


def test_every_module_of_the_client_except_nvml_and_integrations_imports_only_the_standard_library() -> None:
    modules = [
        ".".join(path.relative_to(CLIENT).with_suffix("").parts).removesuffix(".__init__")
        for path in CLIENT.rglob("*.py")
        if not {"nvml", "integrations"} & set(path.parts)
    ]
    assert len(modules) > 15
    code = f"import sys; sys.path.insert(0, {str(CLIENT)!r})\nfor name in {modules!r}: __import__(name)"
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""


def test_a_run_outside_wattloop_ends_after_its_epochs_at_any_metric() -> None:
    with Run(batch_size=8, max_epochs=4, devices=3, environment={}) as run:
        for _ in run.epochs():
            run.report(metric=1.0)
    assert (run.completed_epochs, run.per_device_batch_size, run.reached, run.stopped) == (4, 2, False, False)


def test_a_run_uses_the_settings_of_its_environment(report_server: ReportServer) -> None:
    environment = variables(report_server.url, WATTLOOP_PARAM_DROPOUT="0.5", WATTLOOP_SEED="7")
    with Run(batch_size=1, max_epochs=1, environment=environment) as run:
        assert (run.batch_size, run.per_device_batch_size, run.learning_rate_scale) == (256, 128, 2.0)
        assert (run.max_epochs, run.seed, dict(run.parameters)) == (5, 7, {"DROPOUT": "0.5"})
        epochs = list(run.epochs())
    assert epochs == [0, 1, 2, 3, 4]
    assert [report["epoch"] for report in report_server.reports] == [0, 1, 2, 3, 4, 5, 5]
    assert [report["finished"] for report in report_server.reports] == [False] * 6 + [True]


def test_a_final_metric_is_reported_after_the_target(report_server: ReportServer) -> None:
    with Run(environment=variables(report_server.url)) as run:
        for epoch in run.epochs():
            run.report(metric=(0.5, 0.95)[epoch])
        assert (run.completed_epochs, run.reached) == (2, True)
        run.report(metric=0.8)
        assert run.reached
    reports = [(report["epoch"], report.get("metric"), report["evaluations"]) for report in report_server.reports]
    assert reports == [(0, None, 0), (1, 0.5, 1), (2, 0.95, 2), (2, 0.8, 3), (2, 0.8, 3)]


def test_a_run_names_itself_and_numbers_its_reports(report_server: ReportServer) -> None:
    for _ in range(2):
        with Run(environment=variables(report_server.url)) as run:
            list(run.epochs())
    first, second = dict.fromkeys(report["process"] for report in report_server.reports)
    sent = [(process, number) for process in (first, second) for number in range(1, 8)]
    assert [(report["process"], report["sequence"]) for report in report_server.reports] == sent


def test_a_target_is_reached_by_consecutive_evaluations(report_server: ReportServer) -> None:
    environment = variables(report_server.url, WATTLOOP_TARGET_CONSECUTIVE_EVALUATIONS="2")
    metrics = [0.95, 0.1, 0.95, 0.95, 0.95]
    with Run(environment=environment) as run:
        for epoch in run.epochs():
            run.report(metric=metrics[epoch])
    assert run.completed_epochs == 4
    assert [report["consecutive_reached"] for report in report_server.reports] == [0, 1, 0, 1, 2, 2]


def test_a_run_stops_on_request_of_the_operator_and_has_the_reason(report_server: ReportServer) -> None:
    def stop_at_second_epoch(request: object) -> None:
        stop = report_server.reports[-1]["epoch"] >= 2
        answering(200, b'{"stop": true, "reason": "too expensive"}' if stop else b'{"stop": false}')(request)  # type: ignore[arg-type]

    report_server.behaviour = stop_at_second_epoch
    with Run(environment=variables(report_server.url)) as run:
        for _ in run.epochs():
            run.report(metric=0.1)
    assert (run.completed_epochs, run.stopped, run.stop_reason, run.reached) == (2, True, "too expensive", False)


def test_a_run_continues_without_the_operator_and_its_last_report_is_complete(report_server: ReportServer) -> None:
    report_server.behaviour = answering(503)
    with Run(environment=variables(report_server.url, WATTLOOP_TARGET_THRESHOLD="2")) as run:
        for epoch in run.epochs():
            run.report(metric=epoch / 10)
        report_server.behaviour = answering(200)
    assert run.completed_epochs == 5
    last = report_server.reports[-1]
    assert (last["epoch"], last["metric"], last["evaluations"], last["finished"]) == (5, 0.4, 5, True)


def test_a_failed_run_reports_its_progress_but_not_that_it_finished(report_server: ReportServer) -> None:
    def train() -> None:
        with Run(environment=variables(report_server.url)) as run:
            run.report(metric=0.1)
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        train()
    last = report_server.reports[-1]
    assert (last["epoch"], last["metric"], last["finished"]) == (1, 0.1, False)
    assert (last["failure"], last["consequence"]) == ("ZeroDivisionError", False)


def test_a_failed_run_does_not_wait_for_an_unreachable_operator(report_server: ReportServer) -> None:
    report_server.behaviour = answering(503)
    with pytest.raises(ZeroDivisionError), Run(environment=variables(report_server.url)):
        _ = 1 / 0
    assert len(report_server.reports) == 2


@pytest.mark.parametrize("metric", [float("nan"), float("inf"), -float("inf")])
def test_a_metric_that_is_not_finite_is_reported_as_divergence(metric: float, report_server: ReportServer) -> None:
    with Run(environment=variables(report_server.url)) as run:
        run.report(metric=0.5)
        run.report(metric=metric)
    last = report_server.reports[-1]
    assert (last["metric"], last["diverged"], last["evaluations"]) == (0.5, True, 2)


def test_a_finite_metric_after_divergence_is_reported_as_such(report_server: ReportServer) -> None:
    with Run(environment=variables(report_server.url)) as run:
        run.report(metric=float("nan"))
        run.report(metric=0.5)
    assert (report_server.reports[-1]["metric"], report_server.reports[-1]["diverged"]) == (0.5, False)


def test_processes_of_a_distributed_run_report_their_rank(report_server: ReportServer) -> None:
    with Run(environment=variables(report_server.url, RANK="3")):
        pass
    assert {report["rank"] for report in report_server.reports} == {3}


def test_an_invalid_variable_is_an_error_at_the_start() -> None:
    with pytest.raises(InputError, match="WATTLOOP_BATCH_SIZE"):
        Run(environment={"WATTLOOP_JOB": "team/digits", "WATTLOOP_BATCH_SIZE": "many"})


def test_training_continues_without_an_agent_and_without_measurement(
    report_server: ReportServer, caplog: pytest.LogCaptureFixture
) -> None:
    environment = variables(
        report_server.url, WATTLOOP_AGENT_SOCKET="/nowhere/agent.sock", WATTLOOP_PROFILE_POWER_LIMITS="1"
    )
    with Run(environment=environment) as run:
        for _ in run.epochs():
            run.step()
            run.report(metric=0.95)
    assert run.reached
    assert report_server.reports[-1]["gpus"] == []
    assert "energy is not measured: /nowhere/agent.sock: no agent answers" in caplog.text


def test_steps_report_progress_in_an_epoch_that_is_longer_than_the_deadline(report_server: ReportServer) -> None:
    # Each step takes longer than a quarter of this deadline.
    environment = variables(report_server.url, WATTLOOP_PROGRESS_DEADLINE_SECONDS="1e-9")
    with Run(max_epochs=1, environment=environment | {"WATTLOOP_MAX_EPOCHS": "1"}) as run:
        for _ in run.epochs():
            for _ in range(3):
                run.step()
    assert [(report["epoch"], report["finished"]) for report in report_server.reports] == [
        *[(0, False)] * 4,
        (1, False),
        (1, True),
    ]


def test_steps_send_no_report_while_reports_are_recent_or_without_a_deadline(report_server: ReportServer) -> None:
    for deadline in ("1e9", ""):
        report_server.reports.clear()
        environment = variables(report_server.url, WATTLOOP_PROGRESS_DEADLINE_SECONDS=deadline)
        with Run(environment=environment | {"WATTLOOP_MAX_EPOCHS": "1"}) as run:
            for _ in run.epochs():
                run.step()
        assert len(report_server.reports) == 3
