"""Files that a user names: pipes, devices, sockets and files without an end keep no command waiting. Real processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from wattloop.errors import InputError
from wattloop.files.reading import read_bounded, read_text, special_file_kind

ROOT = Path(__file__).parents[3]
JOB = ROOT / "examples" / "digits" / "job.yaml"
# For the machine's slowness alone: a command that waits for a writer waits for ever.
SECONDS = 60
PIPELINE = ["--blocking-power", "80", "--output", "plans"]
TRACES = ["--dataset", "d", "--network", "n", "--optimizer", "o", "--target-metric", "1", "--max-epochs", "1"]
COMMANDS = {
    "validate": ["validate", "{}"],
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


def wattloop(*words: str, folder: Path, **options: object) -> subprocess.CompletedProcess[str]:
    script = "import sys; from wattloop.commands.main import main; sys.exit(main())"
    command = [sys.executable, "-c", script, *words]
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=folder, **options
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    # A socket's path fits into the kernel's 107 bytes, as pytest's own folders' do not.
    with tempfile.TemporaryDirectory(prefix="wattloop-") as name:
        yield Path(name)


@pytest.fixture
def pipe(folder: Path) -> Path:
    path = folder / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_named_pipe_is_refused_by_each_command_that_reads_a_file(command: str, pipe: Path, folder: Path) -> None:
    done = wattloop(*(word.format(pipe) for word in COMMANDS[command]), folder=folder)
    assert done.returncode == 2, done.stderr
    said = done.stdout + done.stderr
    assert "a named pipe" in said
    assert str(pipe) in said
    assert "Traceback" not in said


@pytest.mark.parametrize("command", ["validate", "run", "power", "agent"])
def test_a_device_without_an_end_is_refused(command: str, folder: Path) -> None:
    done = wattloop(*(word.format("/dev/zero") for word in COMMANDS[command]), folder=folder)
    assert (done.returncode, "it is a device" in done.stdout + done.stderr) == (2, True)


@pytest.mark.parametrize("command", ["validate", "run", "power"])
def test_a_socket_is_refused(command: str, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        done = wattloop(*(word.format(folder / "socket") for word in COMMANDS[command]), folder=folder)
    assert (done.returncode, "it is a socket" in done.stdout + done.stderr) == (2, True)


def test_a_pipe_that_is_open_already_is_read_to_its_end(folder: Path) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as stream:
        stream.write(JOB.read_bytes())
    done = wattloop("validate", f"/dev/fd/{reading}", folder=folder, pass_fds=[reading])
    os.close(reading)
    assert done.stdout == f"/dev/fd/{reading}: RecurringTrainingJob digits: right\n"
    for name in ("-", "/dev/stdin"):
        done = wattloop("validate", name, folder=folder, input=JOB.read_text())
        assert done.stdout == f"{name}: RecurringTrainingJob digits: right\n"


def test_standard_input_without_an_end_is_read_up_to_the_limit(folder: Path) -> None:
    with Path("/dev/zero").open("rb") as endless:
        for name in ("-", "/dev/stdin"):
            done = wattloop("validate", name, folder=folder, stdin=endless)
            assert done.returncode == 2
            assert "found more than 1048576 bytes" in done.stdout


def test_of_a_named_pipe_on_standard_input_the_rest_is_read_though_its_writer_has_gone(
    pipe: Path, folder: Path
) -> None:
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    pipe.write_bytes(JOB.read_bytes())
    done = wattloop("validate", "/dev/stdin", folder=folder, stdin=reading)
    os.close(reading)
    assert done.stdout == "/dev/stdin: RecurringTrainingJob digits: right\n"


def test_a_file_is_read_whole_or_refused_with_its_place(folder: Path) -> None:
    path = folder / "file"
    path.write_bytes(b"ab\ncd\n")
    assert read_bounded(path, 6) == b"ab\ncd\n"
    assert read_bounded(path, 3) == b"ab\nc", "one byte more than is allowed"
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


def test_what_another_library_opens_is_looked_at_before(pipe: Path, folder: Path) -> None:
    assert special_file_kind(pipe) == "a named pipe"
    assert special_file_kind("/dev/null") == "a device"
    assert special_file_kind(folder / "none") is None
    assert special_file_kind(folder) is None
    assert special_file_kind("/dev/stdin") is None
