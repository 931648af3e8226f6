"""Undelivered reports in the termination message of a container: the last one of each process, and nothing else."""

import concurrent.futures
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from support.reporting.report_server import ReportServer, answering
from wattloop.run.report_channel import ReportChannel
from wattloop.run.termination_message import TerminationMessage
from wattloop.wire.training_messages import LimitSchedule, Report
from wattloop.wire.undelivered_reports import PREFIX, TOO_MANY, joined_message, split_message, unpacked

REPORT = Report(process="p", sequence=1, epoch=1.0, metric=0.5, evaluations=1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file as the kubelet makes it."""
    path = tmp_path / "termination-log"
    path.touch()
    return path


def left_in(file: Path) -> tuple[Report, ...]:
    _, text = split_message(file.read_text())
    return unpacked(text) if text else ()


def channel_to(server: ReportServer, file: Path) -> ReportChannel:
    return ReportChannel(server.url, termination_message_path=str(file))


def test_the_newest_undelivered_report_is_left_until_one_is_delivered(report_server: ReportServer, file: Path) -> None:
    channel = channel_to(report_server, file)
    assert channel.send(REPORT) is not None
    assert file.read_text() == ""
    report_server.behaviour = answering(503)
    for sequence in (2, 3):
        # The third one falls into the wait after the failure of the second.
        assert channel.send(replace(REPORT, sequence=sequence)) is None
        assert left_in(file) == (replace(REPORT, sequence=sequence),)
    report_server.behaviour = answering(200)
    assert channel.send_last(replace(REPORT, sequence=4), 0.0) is not None
    assert file.read_text() == ""


def test_a_question_for_a_verdict_is_left_as_a_report(report_server: ReportServer, file: Path) -> None:
    report_server.behaviour = answering(503)
    question = replace(REPORT, verdict_epoch=1, epochs_ahead=2, limit_schedule=LimitSchedule(1, 5, (300,)))
    assert channel_to(report_server, file).ask(question) is None
    assert left_in(file) == (REPORT,)


def test_processes_of_a_container_keep_each_others_reports_and_the_text_of_the_container(file: Path) -> None:
    own = b"checkpoint: \xff\n"
    file.write_bytes(own)
    processes = [TerminationMessage(str(file)) for _ in range(8)]
    reports = [replace(REPORT, process=f"process {rank}", rank=rank, ranks=8) for rank in range(8)]
    for process, report in zip(processes, reports, strict=True):
        process.leave(report)
    assert left_in_bytes(file) == (own, set(reports))
    processes[3].withdraw()
    processes[5].leave(replace(reports[5], sequence=2))
    kept = {*reports[:3], reports[4], replace(reports[5], sequence=2), *reports[6:]}
    assert left_in_bytes(file) == (own, kept)
    for process in processes:
        process.withdraw()
    assert file.read_bytes() == own


def left_in_bytes(file: Path) -> tuple[bytes, set[Report]]:
    output, text = split_message(file.read_text(errors="surrogateescape"))
    return output.encode(errors="surrogateescape"), set(unpacked(text))


def leave_in_turn(path: str, process: str) -> None:
    message = TerminationMessage(path)
    for sequence in range(1, 51):
        message.leave(replace(REPORT, process=process, sequence=sequence))


def test_processes_that_write_at_the_same_time_lose_nothing(file: Path) -> None:
    names = [f"process {number}" for number in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as ranks:
        list(ranks.map(lambda name: leave_in_turn(str(file), name), names))
    assert {(each.process, each.sequence) for each in left_in(file)} == {(name, 50) for name in names}


def test_reports_that_did_not_fit_leave_no_part_until_the_operator_is_back(file: Path) -> None:
    file.write_text(joined_message("", TOO_MANY))
    message = TerminationMessage(str(file))
    message.leave(REPORT)
    assert split_message(file.read_text()) == ("", TOO_MANY)
    message.withdraw()
    assert file.read_text() == ""


def test_a_line_that_a_killed_process_has_half_written_is_replaced(file: Path) -> None:
    file.write_text(f"{PREFIX}c-jH")
    TerminationMessage(str(file)).leave(REPORT)
    assert left_in(file) == (REPORT,)


def test_a_file_that_cannot_be_written_never_ends_the_training(
    tmp_path: Path, report_server: ReportServer, caplog: pytest.LogCaptureFixture
) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * 100_000)
    report_server.behaviour = answering(503)
    for path in ("/dev/full", tmp_path, tmp_path / "missing", large, "/proc/version", "\N{SNOWMAN}\0"):
        caplog.clear()
        channel = ReportChannel(report_server.url, termination_message_path=str(path))
        assert channel.send(REPORT) is None
        assert channel.send(replace(REPORT, sequence=2)) is None
        assert [each for each in caplog.messages if "cannot be left in" in each] != [], path
        assert len([each for each in caplog.messages if "cannot be left in" in each]) == 1
    assert not (tmp_path / "missing").exists()
    assert large.stat().st_size == 100_000


SCRIPT = """
import sys
from wattloop import Run
with Run() as run:
    for epoch in run.epochs():
        run.report(metric=0.5)
        {statement}
"""


@pytest.mark.parametrize(
    ("statement", "failure", "ends_with"),
    [
        ("undefined_name", "NameError", "NameError: name 'undefined_name' is not defined\n"),
        ("sys.exit(0)", "SystemExit", ""),
        ("pass", "", ""),
    ],
)
def test_a_script_that_ends_while_no_operator_answers_leaves_its_last_report_and_the_error_that_ended_it(
    file: Path, statement: str, failure: str, ends_with: str
) -> None:
    """The kubelet takes the log as the message of a failed container only if the file is empty."""
    environment = os.environ | {
        "WATTLOOP_JOB": "team/digits",
        "WATTLOOP_RECURRENCE": "digits-0",
        "WATTLOOP_MAX_EPOCHS": "1",
        "WATTLOOP_REPORT_URL": "http://127.0.0.1:1/v1",
        "WATTLOOP_TERMINATION_MESSAGE_PATH": str(file),
    }
    script = SCRIPT.format(statement=statement)
    if statement == "pass":
        # Without an error the last report is repeated for a minute.
        script = f"import wattloop.run.training_run as it; it.LAST_REPORT_TIMEOUT_SECONDS = 0.0\n{script}"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    output, text = split_message(file.read_text())
    (report,) = unpacked(text)
    assert (report.epoch, report.metric, report.failure, report.finished) == (1.0, 0.5, failure, not failure)
    assert output.endswith(ends_with)
    assert bool(output) == bool(ends_with)
    assert done.stderr.endswith(output)
