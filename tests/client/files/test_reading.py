"""Commands never block on pipes, devices, sockets or endless files that a user names."""

import logging
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support.forked_process import forked
from support.local_runs.local_runs import RunProcess
from wattloop.commands.main import main
from wattloop.errors import InputError
from wattloop.files.reading import read_bounded, read_text, special_file_kind

ROOT = Path(__file__).parents[3]
JOB = ROOT / "examples" / "digits" / "job.yaml"
PIPELINE = ["--blocking-power", "80", "--output", "plans"]
TRACES = ["--dataset", "d", "--network", "n", "--optimizer", "o", "--target-metric", "1", "--max-epochs", "1"]
COMMANDS = {
    "validate": ["validate", "{}"],
    "convert": ["convert", "{}"],
    "logs": ["logs", "{}", "--metric", "accuracy"],
    "run": ["run", "{}"],
    "power": ["power", "select", "--profile", "{}"],
    "simulate": ["simulate", "--train", "{}", "--power", "{}", *TRACES, "--default-batch-size", "1", "--output", "-"],
    "simulate --jobs": ["simulate", "--jobs", "{}", "--output", "-"],
    "replay": ["replay", "--policy", "zeus", "--history", "{}", "--batch-sizes", "8", "--default-batch-size", "8",
               "--output", "-"],
    "plan": ["plan", "--profile", "{}", "--stages", "2", "--microbatches", "2", *PIPELINE],
    "plan --graph": ["plan", "--profile", "{}", "--graph", "{}", *PIPELINE],
    "agent": ["agent", "--config", "{}"],
    "operator": ["operator", "--config", "{}"],
    "operator --kubeconfig": ["operator", "--kubeconfig", "{}"],
    "check": ["check", "--kubeconfig", "{}"],
    "history": ["history", "digits", "--database", "sqlite:///{}"],
    "plot": ["plot", "digits", "--database", "sqlite:///{}"],
}  # fmt: skip
# These set up the logs of their process for as long as it lives.
SERVERS = {"agent", "operator", "operator --kubeconfig"}


class Done(NamedTuple):
    """A command that has ended: its exit code and its output."""

    code: int
    stdout: str
    stderr: str


def wattloop(*arguments: str, folder: Path, stdin: int | None = None) -> Done:
    """In a forked process, for its logs, its standard input and its descriptors."""

    def call() -> int:
        os.chdir(folder)
        if stdin is not None:
            os.dup2(stdin, 0)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        return main(arguments)

    stdout, stderr = folder / "stdout", folder / "stderr"
    # One that waits for a writer never ends, which fails here.
    code = RunProcess(forked(call, stdout, stderr), stderr).ended()
    return Done(code, stdout.read_text(), stderr.read_text())


@pytest.fixture
def folder() -> Iterator[Path]:
    # The path of a socket has at most 107 bytes; pytest's folders are longer.
    with tempfile.TemporaryDirectory(prefix="wattloop-") as name:
        yield Path(name)


@pytest.fixture
def pipe(folder: Path) -> Path:
    path = folder / "pipe"
    os.mkfifo(path)
    return path


@pytest.fixture
def rejected(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command on a file that it must reject; returns its output. One that waits for a writer never ends."""

    def run(command: str, path: object) -> str:
        arguments = [argument.format(path) for argument in COMMANDS[command]]
        if command in SERVERS:
            done = wattloop(*arguments, folder=folder)
            assert (done.code, "Traceback" in done.stderr) == (2, False), done.stderr
            return done.stdout + done.stderr
        monkeypatch.chdir(folder)
        logs = logging.getLogger()
        before = logs.level, list(logs.handlers)
        assert main(arguments) == 2
        assert before == (logs.level, logs.handlers)
        said = capsys.readouterr()
        return said.out + said.err

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_rejects_a_named_pipe(command: str, pipe: Path, rejected: Callable[..., str]) -> None:
    output = rejected(command, pipe)
    assert "a named pipe" in output
    assert str(pipe) in output


@pytest.mark.parametrize("command", ["validate", "logs", "run", "power", "agent"])
def test_commands_reject_a_device(command: str, rejected: Callable[..., str]) -> None:
    assert "a device" in rejected(command, "/dev/zero")


@pytest.mark.parametrize("command", ["validate", "run", "power"])
def test_commands_reject_a_socket(command: str, folder: Path, rejected: Callable[..., str]) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        assert "it is a socket" in rejected(command, folder / "socket")


def pipe_with(content: bytes) -> int:
    """The reading end of a pipe whose writer has closed it."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as stream:
        stream.write(content)
    return reading


def test_an_open_pipe_is_read_to_its_end(folder: Path) -> None:
    reading = pipe_with(JOB.read_bytes())
    done = wattloop("validate", f"/dev/fd/{reading}", folder=folder)
    os.close(reading)
    assert done.stdout == f"/dev/fd/{reading}: RecurringTrainingJob digits: valid\n"
    for name in ("-", "/dev/stdin"):
        reading = pipe_with(JOB.read_bytes())
        done = wattloop("validate", name, folder=folder, stdin=reading)
        os.close(reading)
        assert done.stdout == f"{name}: RecurringTrainingJob digits: valid\n"


def test_endless_standard_input_is_read_up_to_the_limit(folder: Path) -> None:
    with Path("/dev/zero").open("rb") as endless:
        for name in ("-", "/dev/stdin"):
            done = wattloop("validate", name, folder=folder, stdin=endless.fileno())
            assert done.code == 2
            assert "found more than 1048576 bytes" in done.stdout


def test_a_named_pipe_on_standard_input_is_read_after_its_writer_closed_it(pipe: Path, folder: Path) -> None:
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    pipe.write_bytes(JOB.read_bytes())
    done = wattloop("validate", "/dev/stdin", folder=folder, stdin=reading)
    os.close(reading)
    assert done.stdout == "/dev/stdin: RecurringTrainingJob digits: valid\n"


def test_a_file_that_is_too_large_or_not_utf8_is_an_error(folder: Path) -> None:
    path = folder / "file"
    path.write_bytes(b"ab\ncd\n")
    assert read_bounded(path, 6) == b"ab\ncd\n"
    assert read_bounded(path, 3) == b"ab\nc", "one byte more than allowed"
    assert read_text(path, 6, "a file") == "ab\ncd\n"
    with pytest.raises(InputError, match="found more than 5 bytes, expected a file of at most 5 bytes"):
        read_text(path, 5, "a file")
    path.write_bytes(b"ab\nc\xff")
    with pytest.raises(InputError, match="line 2, column 2: found bytes that are not UTF-8"):
        read_text(path, 6, "a file")
    with pytest.raises(InputError, match="Is a directory"):
        read_text(folder, 6, "a file")
    with pytest.raises(InputError, match="null byte"):
        read_text("a\0b", 6, "a file")


def test_special_files_are_identified_by_kind(pipe: Path, folder: Path) -> None:
    assert special_file_kind(pipe) == "a named pipe"
    assert special_file_kind("/dev/null") == "a device"
    assert special_file_kind(folder / "none") is None
    assert special_file_kind(folder) is None
    assert special_file_kind("/dev/stdin") is None
