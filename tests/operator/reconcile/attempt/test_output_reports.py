"""Attempts whose training does not use the client: progress by what is seen of it, and its end from outside."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import ModelBackend, backend_with, job
from support.backends.sample_reports import pod_energy
from wattloop_operator.api.reporting_source import Reporting, ReportingSource
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.reconcile.attempt.report_effect import OutputReport, progress_after_output
from wattloop_operator.reconcile.learning.decision import sample_decision

LOGS: dict[str, Any] = {"reporting": {"source": "Logs"}}
THRESHOLD = 0.9
AGENT_SECONDS = 10
SEEN = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 20)), max_size=30)


def progress_of(backend: ModelBackend, name: str) -> Progress:
    return backend.recurrences[name].progress or Progress()


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (OutputReport(9, metric=0.95, epoch=3), ("Reached", "accuracy reached 0.95 after 3 epochs")),
        (
            OutputReport(9, metric=float("nan"), epoch=3),
            ("Diverged", "its metric diverged: it was NaN or infinite after 3 epochs"),
        ),
        (
            OutputReport(9, metric=0.95, epoch=51),
            ("MissingMetric", "ended without accuracy: none came within objective.maxEpochs, 50 epochs; "),
        ),
    ],
)
@pytest.mark.parametrize("ends_gracefully", [True, False])
def test_a_training_that_is_done_is_ended_and_its_outcome_follows_its_end(
    seen: OutputReport, expected: tuple[str, str], ends_gracefully: bool
) -> None:
    backend = backend_with(**LOGS, retries=0)
    name = backend.start_attempt()
    backend.see(name, seen)
    backend.reconcile()
    assert backend.workloads[name].terminating
    assert backend.recurrences[name].status.result is None
    if ends_gracefully:
        backend.end_workload(name, Failure.DISRUPTED, "killed")
    else:
        backend.workloads.pop(name)
    status = backend.status_of(name)
    assert status.result == expected[0]
    assert expected[1] in status.message


@pytest.fixture
def awaiting() -> tuple[ModelBackend, str]:
    """An attempt on a GPU that was ended at its target, and its name: its pods are gone, and no agent has reported."""
    spec: dict[str, Any] = LOGS | {"power": {"mode": "None"}}
    backend = ModelBackend(job(**spec), devices=1, agent_report_timeout_seconds=AGENT_SECONDS)
    name = backend.start_attempt()
    backend.see(name, OutputReport(9, metric=0.95, epoch=3))
    backend.reconcile()
    backend.workloads.pop(name)
    assert backend.status_of(name).result is None
    return backend, name


def test_a_training_that_was_ended_costs_what_its_agent_reports_afterwards(awaiting: tuple[ModelBackend, str]) -> None:
    backend, name = awaiting
    backend.advance(AGENT_SECONDS - 1)
    backend.report_energy(name, pod_energy(1200.0, max_power_limit_watts=400.0))
    status = backend.status_of(name)
    assert status.result == "Reached"
    assert status.usage.gpu_energy_joules == 1200
    assert "no energy was measured" not in status.message
    (record,) = backend.records.values()
    assert record.energy_joules == 1200


def test_the_agent_of_a_training_that_was_ended_is_awaited_for_its_timeout(awaiting: tuple[ModelBackend, str]) -> None:
    backend, name = awaiting
    conditions = {each.type: each for each in backend.recurrences[name].status.conditions}
    assert (conditions["Running"].status, conditions["Running"].reason) == ("False", "EnergyAwaited")
    status = backend.status_of(name, AGENT_SECONDS)
    assert status.result == "Reached"
    assert "no energy was measured" in status.message
    assert "EnergyAwaited" not in {each.type for each in status.conditions}


def test_an_energy_that_is_reported_after_the_outcome_is_no_longer_called_unmeasured(
    awaiting: tuple[ModelBackend, str],
) -> None:
    backend, name = awaiting
    backend.reconcile_after(AGENT_SECONDS)
    backend.report_energy(name, pod_energy(1200.0, max_power_limit_watts=400.0))
    status = backend.status_of(name)
    assert status.cost_joules is not None
    complete = next(each for each in status.conditions if each.type == "Complete")
    assert status.message == complete.message == "accuracy reached 0.95 after 3 epochs"


def test_what_a_training_shows_between_its_target_and_its_end_does_not_count() -> None:
    backend = backend_with(**LOGS)
    name = backend.start_attempt()
    backend.see(name, OutputReport(1, metric=0.95, epoch=3))
    reached = progress_of(backend, name)
    backend.see(name, OutputReport(2, metric=0.2, epoch=4))
    backend.see(name, OutputReport(3, metric=float("nan"), epoch=5))
    assert progress_of(backend, name) == reached.model_copy(
        update={"processes": (reached.process.model_copy(update={"sequence": 3}),)}
    )
    backend.see(name, OutputReport(4, finished=True))
    assert progress_of(backend, name).finished


@pytest.mark.parametrize(
    "printed",
    [
        [(48, 0.6), (50, 0.7), (51, 0.95)],
        [(48, 0.6), (49, 0.7), (52, 0.95)],
        [(50, 0.7), (51, float("nan"))],
        # Told to end, the script prints its best epoch, or goes on for a while.
        [(50, 0.7), (51, 0.8), (50, 0.95), (4, 0.96), (52, 0.97)],
    ],
)
def test_what_a_training_prints_after_its_last_epoch_does_not_count(printed: list[tuple[int, float]]) -> None:
    backend = backend_with(**LOGS, retries=0)
    name = backend.start_attempt()
    for position, (epoch, metric) in enumerate(printed, start=1):
        backend.see(name, OutputReport(position, metric=metric, epoch=epoch))
    backend.reconcile()
    assert backend.workloads[name].terminating
    status = backend.end_attempt(name, Failure.DISRUPTED, "killed")
    assert (status.result, status.epochs, status.metric) == ("Exhausted", 50, "0.7")
    assert status.message.startswith("accuracy got to 0.7 after 50 epochs, below the target 0.9")


def test_what_a_training_prints_again_after_it_was_asked_to_end_starts_no_other_count() -> None:
    backend = backend_with(**LOGS)
    name = backend.start_attempt()
    backend.see(name, OutputReport(1, metric=0.6, epoch=5))
    stopped = {"stop_requested": True, "stop_reason": "it has cost its limit"}
    backend.merge(backend.recurrences[name], progress_of(backend, name).model_copy(update=stopped))
    for position, epoch in enumerate((4, 5, 1), start=2):
        backend.see(name, OutputReport(position, metric=0.95, epoch=epoch))
    progress = progress_of(backend, name)
    assert (progress.epoch, progress.metric, progress.reached) == (Decimal(5), Decimal("0.6"), False)
    assert len(progress.processes) == 1


def test_what_a_training_shows_after_it_has_diverged_does_not_make_it_reach() -> None:
    backend = backend_with(**LOGS)
    name = backend.start_attempt()
    # A fast script prints all of it before anything can end it.
    for epoch, metric in enumerate((0.3, float("inf"), 0.95), start=1):
        backend.see(name, OutputReport(epoch, metric=metric, epoch=epoch))
    backend.see(name, OutputReport(4, finished=True))
    assert backend.end_attempt(name).result == "Diverged"
    assert backend.recurrences[name].status.epochs == 2


def test_a_pattern_that_matches_no_line_is_named() -> None:
    backend = backend_with(reporting={"source": "Logs", "pattern": "acc: (?P<metric>[0-9]+)"})
    name = backend.start_attempt()
    backend.see(name, OutputReport(1, finished=True))
    backend.end_attempt(name)
    message = backend.recurrences[name].status.message
    assert "no line matched spec.reporting.pattern 'acc: (?P<metric>[0-9]+)' with a number; print a line" in message


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[3/30] val acc=0.31m", "has val acc followed by 'm': print the number alone, or read it with"),
        ("iter 3 | val acc 81 / 100", "has val acc followed by '/ 100': print the number alone"),
        ("it 3 | val acc 0.31", "has val acc before a space, without '=' as in val acc=0.5: print the number alone"),
    ],
)
def test_the_message_of_a_training_whose_lines_did_not_count_says_why(line: str, reason: str) -> None:
    target = {"metric": "val acc", "threshold": "0.9"}
    backend = backend_with(reporting={"source": "Logs"}, objective={"target": target})
    name = backend.start_attempt()
    backend.see(name, OutputReport(1, finished=True))
    backend.end_attempt(name, output=f"begin\n{line}\n")
    message = backend.recurrences[name].status.message
    assert message.startswith(f"ended without val acc: the line '{line}' {reason}")


def test_a_training_of_which_perhaps_the_training_data_s_metric_has_counted_teaches_nothing() -> None:
    backend = backend_with(**LOGS)
    name = backend.start_attempt()
    backend.see(name, OutputReport(1, metric=0.7, epoch=1))
    backend.see(name, OutputReport(2, finished=True))
    epochs = (f"Epoch {epoch}: accuracy=0.{6 + epoch}\nval_accuracy=0.5\n" for epoch in (1, 2, 3))
    status = backend.end_attempt(name, output="".join(epochs))
    assert status.result == "MissingMetric"
    assert status.message.startswith(
        "ended without accuracy: the value in 'Epoch 1: accuracy=0.7' has counted, and is perhaps of the training "
        "data, since a later line, 'val_accuracy=0.5', has that of an evaluation"
    )


def test_a_training_that_does_not_end_is_abandoned_after_a_minute() -> None:
    backend = backend_with(**LOGS)
    name = backend.start_attempt()
    backend.see(name, OutputReport(9, metric=0.95, epoch=3))
    backend.reconcile()
    assert backend.status_of(name, 61).result == "Reached"
    assert "did not end within 60 s" in backend.recurrences[name].status.message


def test_a_training_continues_until_its_target_and_within_its_last_epoch() -> None:
    backend = backend_with(**LOGS)
    name = backend.start_attempt()
    backend.see(name, OutputReport(1, metric=0.5, epoch=50))
    backend.reconcile()
    assert not backend.workloads[name].terminating
    assert progress_of(backend, name).process.evaluations == 1


def test_a_training_with_the_client_is_not_ended_at_its_target(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    backend.report(name, metric=0.95)
    backend.reconcile()
    assert not backend.workloads[name].terminating


def test_a_backend_that_reads_no_output_starts_no_training_that_needs_it() -> None:
    backend = backend_with(**LOGS)
    backend.reads_output = False
    backend.reconcile()
    assert backend.recurrences == {}
    assert {each.reason for each in backend.job.status.conditions if each.type == "Ready"} == {"NotSupported"}


def test_a_job_whose_metric_is_in_a_file_starts_only_where_files_are_read() -> None:
    backend = backend_with(reporting={"source": "File", "path": "metrics.csv"})
    backend.reconcile()
    assert backend.running == []
    [ready] = [each for each in backend.job.status.conditions if each.type == "Ready"]
    assert (ready.reason, "tail -n 0 -F metrics.jsonl & exec python train.py" in ready.message) == (
        "NotSupported",
        True,
    )


def test_a_change_of_the_source_applies_to_the_next_attempt() -> None:
    backend = backend_with(**LOGS)
    name = backend.start_attempt()
    backend.change_spec(reporting={"source": "Push"})
    backend.see(name, OutputReport(9, metric=0.95))
    backend.reconcile()
    assert backend.workloads[name].terminating


@pytest.mark.parametrize(
    ("seen", "epochs"),
    [
        ([None, None, None], ["3"]),
        ([1, 2, 1, 1.5], ["2", "1.5"]),
        ([0.67, 0.6667], ["0.67"]),
    ],
    ids=["each evaluation is an epoch", "a training that is started again adds its epochs", "rounding is no restart"],
)
def test_the_epochs_of_a_training_follow_from_what_is_seen(seen: list[float | None], epochs: list[str]) -> None:
    backend = backend_with(**LOGS)
    name = backend.start_attempt()
    for position, epoch in enumerate(seen, start=1):
        backend.see(name, OutputReport(position, metric=0.1 * position, epoch=epoch))
    progress = progress_of(backend, name)
    assert [str(process.epoch) for process in progress.processes] == epochs
    assert progress.epoch == sum(map(Decimal, epochs))


def test_a_repeated_evaluation_counts_once() -> None:
    consecutive = {"objective": {"target": {"metric": "accuracy", "threshold": "0.9", "consecutiveEvaluations": 2}}}
    backend = backend_with(**LOGS, **consecutive)
    name = backend.start_attempt()
    backend.see(name, OutputReport(1, metric=0.95, epoch=1, evaluation="first"))
    backend.see(name, OutputReport(2, metric=0.95, epoch=1.5, evaluation="first"))
    assert not progress_of(backend, name).reached
    backend.see(name, OutputReport(3, metric=0.95, epoch=2, evaluation="second"))
    assert progress_of(backend, name).reached


def test_the_progress_has_for_the_next_operator_that_a_container_counts_epochs_from_0() -> None:
    backend = backend_with(**LOGS)
    name = backend.start_attempt()
    backend.see(name, OutputReport(1, metric=0.1, epoch=1, process="pod/0", counts_from_0=True))
    backend.see(name, OutputReport(2, metric=0.2, epoch=1, process="pod/1"))
    known = {each.id: each.counts_from_0 for each in progress_of(backend, name).processes}
    assert known == {"pod/0": True, "pod/1": False}


@given(SEEN, st.data())
def test_what_is_seen_again_or_late_changes_nothing(seen: list[tuple[float, float]], data: st.DataObject) -> None:
    objective = {"target": {"metric": "accuracy", "threshold": f"{THRESHOLD}"}, "maxEpochs": 1000}
    backend = ModelBackend(job(**LOGS, objective=objective))
    recurrence = sample_decision(backend.state, backend.now)
    reports = [OutputReport(index + 1, metric, epoch) for index, (metric, epoch) in enumerate(seen)]
    for index, report in enumerate(reports):
        progress = progress_after_output(recurrence, report)
        recurrence = recurrence.model_copy(update={"progress": progress})
        assert progress_after_output(recurrence, data.draw(st.sampled_from(reports[: index + 1]))) == progress
    metrics = [metric for metric, _ in seen]
    # What follows the target does not count.
    expected = next((metric for metric in metrics if metric >= THRESHOLD), metrics[-1] if metrics else None)
    found = recurrence.progress.metric
    assert found is None if expected is None else float(found or 0) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("source", ["Logs", "TerminationMessage"])
def test_the_outcome_of_a_training_that_ended_waits_for_its_output(source: str) -> None:
    backend = backend_with(reporting={"source": source})
    name = backend.start_attempt()
    assert backend.end_attempt(name).result is None
    backend.see(name, OutputReport(5, metric=0.7, epoch=2))
    backend.see(name, OutputReport(6, finished=True))
    assert backend.status_of(name).result == "Exhausted"


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("my rows.csv", "wattloop logs 'my rows.csv' --source File --metric accuracy"),
        ("t$(WATTLOOP_RECURRENCE).csv", "wattloop logs FILE --source File --metric accuracy"),
    ],
)
def test_the_command_for_a_file_without_the_metric_names_a_file_that_exists(path: str, command: str) -> None:
    backend = backend_with(**LOGS)
    name = backend.start_attempt()
    recurrence = backend.recurrences[name]
    reporting = Reporting(source=ReportingSource.FILE, path=path)
    backend.recurrences[name] = recurrence.model_copy(
        update={"spec": recurrence.spec.model_copy(update={"reporting": reporting})}
    )
    backend.see(name, OutputReport(1, finished=True))
    backend.end_attempt(name)
    assert command in backend.recurrences[name].status.message


def test_the_wait_for_the_last_lines_is_bounded() -> None:
    backend = backend_with(**LOGS)
    name = backend.start_attempt()
    backend.end_attempt(name)
    assert backend.status_of(name, 29).result is None
    assert backend.status_of(name, 1).result == "MissingMetric"
