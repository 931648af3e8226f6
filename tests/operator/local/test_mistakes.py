"""Mistakes of a stranger's first hour, through the real `wattloop run`: their message and their attempts."""

import re
from pathlib import Path

import pytest

from support.local_runs.local_runs import LocalJob
from support.test_sets.parameters import exhaustive_after

pytestmark = pytest.mark.processes

RUN = """
import wattloop, nvml_simulator
with wattloop.Run() as run:
    for epoch in run.epochs():
        nvml_simulator.occupy(0, work=3120.0, intensity=0.8)
        {statement}
        run.report(metric=0.1 * (epoch + 1))
"""
UNKNOWN_FLAG = "import argparse; argparse.ArgumentParser(prog='train.py').parse_args(['--bach'])"
OUT_OF_MEMORY = """if run.batch_size >= 32:
            raise MemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")"""


def command_of(local_job: LocalJob, before: str, after: str) -> None:
    local_job.manifest.write_text(local_job.manifest.read_text().replace(before, after))


# tests/operator/reconcile/attempt/test_start_failure.py has what is said of each mistake.
@pytest.mark.parametrize(
    ("script", "before", "after", "message", "has_log"),
    exhaustive_after(
        [
            ("", "python", "pyton", "pyton: cannot be started: No such file or directory; check the command", False),
            ("import torhc", "", "", "No module named 'torhc'; install the package", True),
            ("open('data.csv')", "", "", "'data.csv'; check the path", True),
            (UNKNOWN_FLAG, "", "", "unrecognized arguments: --bach; check the command", True),
            ("", "train.py", "trian.py", "trian.py': [Errno 2] No such file or directory; check the path", True),
            ("for x in range(3) print(x)", "", "", "SyntaxError: invalid syntax; fix the script", True),
            (RUN.format(statement="open('missing.bin')"), "", "", "'missing.bin'; check the path", True),
            (
                "raise ModuleNotFoundError(\"No module named 'wattloop'\")",
                "",
                "",
                "install the client wattloop in the Python that runs the script",
                True,
            ),
        ],
        usual=2,
    ),
)
def test_a_mistake_costs_two_attempts_of_one_batch_size_and_is_explained_once(
    local_job: LocalJob,
    capsys: pytest.CaptureFixture[str],
    script: str,
    before: str,
    after: str,
    message: str,
    has_log: bool,
) -> None:
    local_job.job(script)
    command_of(local_job, before, after)
    assert local_job.run("--recurrences", "20") == 1
    stderr = capsys.readouterr().err
    assert local_job.outcomes() == [("0", "0", "start-failed"), ("0", "1", "start-failed")]
    assert {row["batch_size"] for row in local_job.rows()} == {"32"}
    assert stderr.count(message) == 1
    assert "tiny: the training fails at its start (see above); fix it, then run the same command again" in stderr
    logs = re.findall(r"; see (/\S+\.log)", stderr)
    assert len(logs) == int(has_log)
    for log in logs:
        *_, last = Path(log).read_text().splitlines()
        assert f"\n  {last}\n" in stderr


def test_the_same_command_goes_on_once_the_mistake_is_fixed(local_job: LocalJob) -> None:
    local_job.job("import torhc")
    assert local_job.run("--recurrences", "3") == 1
    local_job.job()
    assert local_job.run("--recurrences", "3") == 0
    assert local_job.outcomes()[-2:] == [("1", "0", "reached"), ("2", "0", "reached")]


def test_a_crash_at_the_same_line_at_two_batch_sizes_ends_the_run(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    local_job.job("print({}['path'])")
    assert local_job.run("--recurrences", "20") == 1
    assert local_job.outcomes() == [("0", "0", "crashed"), ("0", "1", "start-failed")]
    assert [row["batch_size"] for row in local_job.rows()] == ["32", "8"]
    assert "StartFailed: it failed at its start: exit code 1; KeyError at the same place as before; fix the script" in (
        capsys.readouterr().err
    )


def test_a_value_that_a_script_prints_before_it_fails_is_no_success(local_job: LocalJob) -> None:
    local_job.job("print('current model: accuracy=0.99')\n{}['path']\n", reporting={"source": "Logs"})
    assert local_job.run("--recurrences", "1") == 1
    assert {outcome for _, _, outcome in local_job.outcomes()} == {"crashed", "start-failed"}


def test_the_same_signal_at_two_batch_sizes_ends_the_run(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    local_job.job("import os; os.kill(os.getpid(), 11)")
    assert local_job.run("--recurrences", "20") == 1
    assert local_job.outcomes() == [("0", "0", "crashed"), ("0", "1", "start-failed")]
    assert [row["batch_size"] for row in local_job.rows()] == ["32", "8"]
    stderr = capsys.readouterr().err
    assert "StartFailed: it failed at its start: killed by signal SIGSEGV; SIGSEGV before the first epoch, as" in stderr
    assert "tiny: the training fails at its start (see above); fix it, then run the same command again" in stderr


def test_a_typo_at_the_end_of_a_script_costs_one_attempt_and_blames_no_batch_size(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    local_job.job(RUN.format(statement="if epoch == 2: print(histroy)"))
    assert local_job.run("--recurrences", "20") == 1
    assert local_job.outcomes() == [("0", "0", "script-error")]
    stderr = capsys.readouterr().err
    assert "NameError: name 'histroy' is not defined" in stderr
    assert "fix the script; no batch size is blamed; see " in stderr
    assert "tiny: the training's script has an error (see above); fix it, then run the same command again" in stderr
    local_job.job()
    assert local_job.run("--recurrences", "3") == 0
    assert {outcome for _, _, outcome in local_job.outcomes()[1:]} == {"reached"}


def test_a_training_that_reports_nothing_ends_the_run_and_shows_what_it_printed(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    local_job.job("print('accuracy is fine')")
    assert local_job.run("--recurrences", "20") == 1
    assert local_job.outcomes() == [("0", "0", "missing-metric")]
    stderr = capsys.readouterr().err
    assert "MissingMetric: ended without accuracy: call run.report(metric=…)" in stderr
    assert "\n  accuracy is fine\n" in stderr
    assert "Logs" not in stderr
    assert "tiny: the training reports nothing (see above); fix it, then run the same command again" in stderr


def test_a_metric_that_is_printed_and_not_reported_leads_to_the_output(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    local_job.job("print('epoch 1: accuracy=0.4')")
    assert local_job.run("--recurrences", "20") == 1
    assert "its output has accuracy: set spec.reporting.source to Logs" in capsys.readouterr().err


def test_a_batch_size_without_enough_memory_is_given_up_and_others_are_tried(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    local_job.job(RUN.format(statement=OUT_OF_MEMORY))
    assert local_job.run("--recurrences", "2") == 0
    results = {(row["batch_size"], row["outcome"]) for row in local_job.rows()}
    assert ("32", "crashed") in results
    assert {size for size, outcome in results if outcome == "reached"} <= {"8", "16"}
    assert local_job.outcomes()[-1][2] == "reached"
    assert "Crashed: batch size 32: MemoryError; exit code 1; see /" in capsys.readouterr().err


def test_a_crash_after_epochs_counts_against_its_batch_size_and_shows_the_last_lines(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    local_job.job(RUN.format(statement="open(f'epoch-{1 - epoch}.bin') if epoch else None"), retries=0)
    assert local_job.run("--recurrences", "1") == 1
    assert local_job.outcomes() == [("0", "0", "crashed")]
    stderr = capsys.readouterr().err
    assert "Crashed: batch size 32: FileNotFoundError; exit code 1; see /" in stderr
    assert "\n  FileNotFoundError: [Errno 2] No such file or directory: 'epoch-0.bin'\n" in stderr
