"""The `wattloop` command: exit codes, and errors without a traceback."""

import argparse
import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from wattloop.commands import main as command_line
from wattloop.commands.contract import Command
from wattloop.commands.main import VARIABLE
from wattloop.errors import InputError, OperationError, UsageError
from wattloop.installation import how_to_install

FUNCTIONS: dict[str, Callable[[argparse.Namespace], int]] = {}


def _call(arguments: argparse.Namespace) -> int:
    return FUNCTIONS["now"](arguments)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=1)


COMMAND = Command("Tests the command.", "  wattloop try --count 2", _configure, _call)


@pytest.fixture
def subcommand(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[argparse.Namespace], int]], None]]:
    """Sets the function that `wattloop try` runs."""
    entry = EntryPoint("try", f"{__name__}:COMMAND", command_line.GROUP)
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, type(sys)(__name__)))
    monkeypatch.setattr(sys.modules[__name__], "COMMAND", COMMAND, raising=False)
    monkeypatch.setattr(command_line, "entry_points", lambda group: [entry] if group == command_line.GROUP else [])
    yield lambda function: FUNCTIONS.update(now=function)
    FUNCTIONS.clear()


def failing(error: BaseException) -> Callable[[argparse.Namespace], int]:
    def fail(_: argparse.Namespace) -> int:
        raise error

    return fail


@pytest.mark.parametrize(("given", "used"), [(None, "1"), ("4", "4")])
def test_a_command_uses_one_thread_for_linear_algebra_unless_the_user_sets_it(
    given: str | None,
    used: str,
    subcommand: Callable[[Callable[[argparse.Namespace], int]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    subcommand(lambda _: seen.append(os.environ[VARIABLE]) or 0)
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)
    if given is not None:
        monkeypatch.setenv(VARIABLE, given)
    assert command_line.main(["try"]) == 0
    assert seen == [used]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("--a goes with --b"), 2, "wattloop try: --a goes with --b\n"),
        (InputError("t.csv", "'x'", "a number", 3, "power"), 2, "wattloop try: t.csv: line 3, column power: found 'x'"),
        (OperationError("the disk is full"), 1, "wattloop try: the disk is full\n"),
        (KeyboardInterrupt(), 130, "wattloop try: interrupted\n"),
    ],
)
def test_an_error_is_a_message_and_an_exit_code(
    subcommand: Callable[..., None], capsys: pytest.CaptureFixture[str], error: BaseException, code: int, message: str
) -> None:
    subcommand(failing(error))
    assert command_line.main(["try"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(message)


@pytest.mark.parametrize("error", [InputError, OperationError, UsageError])
def test_control_characters_in_an_error_do_not_reach_the_terminal(
    subcommand: Callable[..., None], capsys: pytest.CaptureFixture[str], error: Callable[..., BaseException]
) -> None:
    texts = ("p.csv", "row \x1b[2J\r", "é\u202e") if error is InputError else ("row \x1b[2J\r é\u202e",)
    subcommand(failing(error(*texts)))
    command_line.main(["try"])
    found = capsys.readouterr().err
    assert "row \\x1b[2J\\r" in found
    assert "é\\u202e" in found
    assert found.removesuffix("\n").isprintable()


def test_an_unexpected_error_keeps_its_traceback(subcommand: Callable[..., None]) -> None:
    subcommand(failing(PermissionError(1, "unexpected")))
    with pytest.raises(PermissionError):
        command_line.main(["try"])


def test_the_exit_code_is_the_result_of_the_subcommand(subcommand: Callable[..., None]) -> None:
    subcommand(lambda arguments: arguments.count)
    assert command_line.main(["try", "--count", "0"]) == 0
    assert command_line.main(["try"]) == 1


@pytest.mark.parametrize("arguments", [["try", "--cou", "2"], ["try", "--count", "two"], ["try", "more"]])
def test_invalid_arguments_are_a_usage_error(
    subcommand: Callable[..., None], capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main(arguments)
    assert ended.value.code == 2
    assert "wattloop try: error:" in capsys.readouterr().err


def test_an_unknown_subcommand_is_an_error_that_lists_the_subcommands(
    subcommand: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["tri"]) == 2
    assert capsys.readouterr().err == "wattloop: unknown subcommand 'tri'; the subcommands are: try\n"


def test_an_entry_point_without_its_extra_is_an_error_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = EntryPoint("plan", "wattloop_research.no_such_module:COMMAND", command_line.GROUP)
    monkeypatch.setattr(command_line, "entry_points", lambda group: [entry])
    assert command_line.main(["plan"]) == 1
    assert how_to_install("research") in capsys.readouterr().err


def test_a_module_that_a_running_subcommand_lacks_is_an_error_that_names_the_extra(
    subcommand: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def run(arguments: argparse.Namespace) -> int:
        import no_such_module  # noqa: F401, PLC0415

        return 0

    subcommand(run)
    assert command_line.main(["try"]) == 1
    captured = capsys.readouterr().err
    assert captured.startswith("wattloop try: needs the module no_such_module, which is not installed; ")
    assert how_to_install("operator") in captured


def test_the_check_of_arguments_runs_before_the_subcommand(
    monkeypatch: pytest.MonkeyPatch, subcommand: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def reject(arguments: argparse.Namespace) -> None:
        raise UsageError(f"--count: found {arguments.count}, expected 1")

    monkeypatch.setattr(sys.modules[__name__], "COMMAND", dataclasses.replace(COMMAND, check=reject))
    subcommand(failing(AssertionError("it must not run")))
    assert command_line.main(["try", "--count", "2"]) == 2
    assert capsys.readouterr().err == "wattloop try: --count: found 2, expected 1\n"


def test_the_list_of_subcommands_imports_no_subcommand() -> None:
    code = (
        "import sys\nfrom wattloop.commands.main import main\nmain(['--version']) if '-v' in sys.argv else main([])\n"
        "print(sorted(name for name in sys.modules if name.startswith('wattloop_')))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"
    shown = re.findall(r"^  ([a-z][a-z-]*)  ", ran.stdout, re.MULTILINE)
    assert shown == [*command_line.EVERY_DAY, *command_line.LABORATORY]
    # The page's last line names the completion.
    left_out = {entry.name for entry in entry_points(group=command_line.GROUP)} - {*shown, "completion"}
    assert left_out == command_line.SERVICES.keys()
    assert len(command_line.EVERY_DAY) <= 9


PRINTING = """
import sys
from wattloop.commands.main import _exit_code
sys.exit(_exit_code("wattloop history", lambda: print("row\\n" * 50_000) or 0))
"""
HELPING = "import sys; from wattloop.commands.main import main; sys.exit(main(['--help']))"


def test_a_closed_pipe_causes_no_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        ran = subprocess.run(
            [sys.executable, "-c", PRINTING], stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (ran.returncode, ran.stderr) == (1, "")


@pytest.mark.parametrize(("program", "title"), [(PRINTING, "wattloop history"), (HELPING, "wattloop")])
def test_a_full_output_is_an_error(program: str, title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # If output is unbuffered, argparse suppresses the error.
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ran.returncode == 1
    assert ran.stderr == f"{title}: cannot write: No space left on device; free space and run it again\n"


CLOSED = """
import os, sys
from wattloop.commands import main as command_line
from wattloop.commands.contract import Command
def run(arguments):
    # A file opened now must not get the descriptor of a stream.
    assert os.open(os.devnull, os.O_RDONLY) > 2
    assert sys.stdin.read() == ""
    sys.stderr.write("warned")
    if sys.argv[1] == "prints":
        print("row")
    return 0
command_line.entry_points = lambda group: [type("Entry", (), {"name": "try", "load": lambda self: COMMAND})()]
COMMAND = Command("", "", lambda parser: None, run)
sys.exit(command_line.main(["try"]))
"""


@pytest.mark.parametrize(
    ("does", "code", "captured"),
    [
        ("prints", 1, "cannot write: Bad file descriptor; standard output was closed at the start\n"),
        ("nothing", 0, "warned"),
    ],
)
def test_closed_streams_cause_no_traceback(does: str, code: int, captured: str) -> None:
    arguments = [sys.executable, "-c", CLOSED, does]
    ran = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&-', "sh", *arguments], stderr=subprocess.PIPE, text=True, check=False
    )
    assert ran.returncode == code
    assert ran.stderr.endswith(captured)
    assert "Traceback" not in ran.stderr
    silent = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *arguments], check=False)
    assert silent.returncode == code


def test_a_character_outside_the_encoding_causes_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    code = (
        "from wattloop.commands import main as command_line\n"
        "command_line._overview = lambda *_: print('größe – α') or 0\n"
        "raise SystemExit(command_line.main([]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "gr\\xf6\\xdfe \\u2013 \\u03b1\n"


def test_the_command_runs_as_a_module_of_a_python_whose_programs_are_in_no_path() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "wattloop", "rnu"], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("python -m wattloop: unknown subcommand 'rnu'")
