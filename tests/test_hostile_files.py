"""Every command that reads a file of a user, with hostile files: a clear error, in bounded memory and time.

Each command runs in a process forked from this one, which has imported what it needs, with a limit on its memory.
"""

import base64
import gzip
import importlib
import os
import resource
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from support.forked_process import forked
from wattloop.commands.main import main

# Imported here once, and not in each child.
for module in ("numpy", "rich.live", "wattloop_operator.local.live_view", "wattloop_operator.local.local_run"):
    importlib.import_module(module)
for module in ("rows", "history_sources"):
    importlib.import_module(f"wattloop_operator.history.{module}")
for module in ("pipeline_emulation", "plan_folder", "replayed_steps"):
    importlib.import_module(f"wattloop_research.command_line.{module}")
for module in ("frequency.files.recorded_run_file", "simulation.replayed_history", "simulation.tasks"):
    importlib.import_module(f"wattloop_research.{module}")

pytestmark = [pytest.mark.processes, pytest.mark.long, pytest.mark.timeout(600)]

# More memory than the process has before, and processor time.
MEMORY_BYTES = 768 * 1024 * 1024
SECONDS = 60
MAX_LINE_CHARACTERS = 1_200
MAX_LINES = 12
# A database that cannot be read, and a folder that cannot be listed, are errors of an operation.
OPERATION_ERRORS = {
    "history",
    "history FOLDER",
    "replay FOLDER",
    "plot",
    "plan choose",
    "pipeline analyze",
    "pipeline compare",
}

TRACES = ["--dataset", "d", "--network", "n", "--optimizer", "o", "--target-metric", "1", "--max-epochs", "1"]
PIPELINE = ["--stages", "2", "--microbatches", "2", "--blocking-power", "80"]
PROFILE = "stage,instruction,frequency,time,energy\n" + "".join(
    f"{stage},{kind},{clock},{100 / clock},{clock / 10}\n"
    for stage in range(2)
    for kind in ("forward", "backward")
    for clock in (900, 1400)
)
EXPERIMENT = "Merak+bert+1+dp1+pp4+tp1+mbs4+nmb128+PointSolution"
# {} is the hostile file, and PROFILE a valid profile. With names, {} is a folder with hostile files of these names.
COMMANDS: dict[str, tuple[str, list[str]]] = {
    "validate": ("", ["validate", "{}"]),
    "run": ("", ["run", "{}", "--simulated-gpus", "1", "--output", "out"]),
    "sweep": ("", ["sweep", "{}", "--simulated-gpus", "1", "--output", "out"]),
    "simulate --train": ("", ["simulate", "--train", "{}", "--power", "{}", *TRACES, "--default-batch-size", "1",
                              "--output", "-"]),
    "simulate --jobs": ("", ["simulate", "--jobs", "{}", "--output", "-"]),
    "replay": ("", ["replay", "--policy", "zeus", "--history", "{}", "--batch-sizes", "8", "--default-batch-size", "8",
                    "--output", "-"]),
    "power select": ("", ["power", "select", "--profile", "{}", "--selector", "energy"]),
    "power select JSON": ("profile.json", ["power", "select", "--profile", "{}/profile.json", "--selector", "energy"]),
    "plan": ("", ["plan", "--profile", "{}", *PIPELINE, "--output", "out"]),
    "plan --graph": ("", ["plan", "--profile", "PROFILE", "--graph", "{}", "--blocking-power", "80",
                          "--output", "out"]),
    "plan evaluate": ("", ["plan", "evaluate", "--profile", "PROFILE", *PIPELINE, "{}"]),
    "plan choose": ("summary.json", ["plan", "choose", "--directory", "{}", "--deadline", "3"]),
    "pipeline analyze": ("0.prof.json", ["pipeline", "analyze", "{}"]),
    "pipeline compare": ("0.prof.json", ["pipeline", "compare", "--plans", "{}", "--runs", "{}", "--output", "c.png"]),
    "pipeline emulate": ("", ["pipeline", "emulate", "--profile", "PROFILE", *PIPELINE, "{}"]),
    "history": ("", ["history", "digits", "--database", "{}"]),
    "history FOLDER": ("wattloop.db", ["history", "{}"]),
    "plot": ("", ["plot", "digits", "--database", "{}", "--output", "out"]),
    "pipeline profile, export": ("instructions-0.csv time-energy-0.csv",
                                 ["pipeline", "profile", "--from", "{}", "--output", "p.csv", "--clocks", "900",
                                  "--microbatches", "2", "--iterations", "2"]),
    "pipeline profile, dumps": ("0.prof.json 0.sched.json",
                                ["pipeline", "profile", "--from", "{}", "--output", "p.csv"]),
    "pipeline evaluate": (f"A40/dp1+pp4+tp1/{EXPERIMENT}/0.prof.json", ["pipeline", "evaluate", "{}"]),
    "pipeline analyze --base": ("0.prof.json", ["pipeline", "analyze", "{}", "--base", "{}"]),
    "run --output": ("wattloop-run.json", ["run", "JOB", "--simulated-gpus", "1", "--output", "{}"]),
    "sweep --output": ("wattloop-run.json", ["sweep", "JOB", "--simulated-gpus", "1", "--output", "{}"]),
    "convert": ("", ["convert", "{}"]),
    "replay FOLDER": ("wattloop.db", ["replay", "{}"]),
}  # fmt: skip


def written(content: Callable[[], bytes]) -> Callable[[Path], None]:
    """Writes what a function makes, so that no process that only collects the tests makes it."""

    def write(path: Path) -> None:
        path.write_bytes(content())

    return write


def huge(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(100 * 1024**3)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def linked_pipe(path: Path) -> None:
    pipe = path.with_name(f"{path.name}.pipe")
    os.mkfifo(pipe)
    path.symlink_to(pipe)


def folder(path: Path) -> None:
    path.mkdir()


def damaged_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE x (y)")
        connection.executemany("INSERT INTO x VALUES (?)", [("z" * 1000,)] * 1000)
    connection.close()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)


def with_archive(path: Path) -> None:
    """A FrequencyPlan whose archive has 16 MiB when decompressed."""
    document = b'{"format":"wattloop-frequency-plans","version":1,"points":[' + b"[]," * 5_300_000 + b"[]]}"
    archive = base64.b64encode(gzip.compress(document)).decode()
    path.write_text(
        "apiVersion: wattloop.dev/v1alpha1\nkind: FrequencyPlan\nmetadata: {name: bomb}\n"
        f"spec:\n  archive: {archive}\n"
    )


MANY = 200_000
FILES: dict[str, Callable[[Path], None]] = {
    "huge": huge,
    "empty": written(lambda: b""),
    "binary": written(lambda: bytes(range(256)) * 1000),
    "NUL bytes": written(lambda: b"\0" * 100_000),
    "not UTF-8": written(lambda: b"a,b\n\xff\xfe,1\n"),
    "folder": folder,
    "named pipe": os.mkfifo,
    "symbolic link to itself": loop,
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to a named pipe": linked_pipe,
    "missing": lambda _: None,
    "deep JSON": written(lambda: b"[" * MANY + b"]" * MANY),
    "deep JSON object": written(lambda: b'{"a":' * MANY + b"1" + b"}" * MANY),
    "many lists": written(lambda: b"[" + b"[]," * 8_000_000 + b"[]]"),
    "ones": written(lambda: b"[[" + b"1," * 3_000_000 + b"1]]"),
    "5,000 digits": written(lambda: b"[[" + b"1" * 5_000 + b"]]"),
    "infinity": written(lambda: b"[[1e999, Infinity, NaN, -0.0, 1e308]]"),
    "a million columns": written(lambda: b",".join(b"c%d" % number for number in range(1_000_000)) + b"\n1\n"),
    "a line of commas": written(lambda: b"," * 60_000_000),
    "many lines": written(lambda: b"a,b\n" + b"1,2\n" * 4_000_000),
    "an open quotation": written(lambda: b'a,b\n"' + b'\n","' * 10_000_000),
    "gzip": lambda path: path.write_bytes(gzip.compress(b"\0" * 50_000_000)),
    "damaged database": damaged_database,
    "archive": with_archive,
}


def valid_inputs(place: Path) -> None:
    (place / "PROFILE").write_text(PROFILE)
    job = Path(__file__).parents[1] / "examples" / "digits" / "job.yaml"
    (place / "JOB").write_bytes(job.read_bytes())


def ended(place: Path, arguments: list[str]) -> tuple[int, str]:
    """The exit code of a command, or minus the signal that ended it, and its output."""
    output = place / "output"

    def limited() -> int:
        os.chdir(place)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        # It also counts while other processes have the processors.
        signal.alarm(5 * SECONDS)
        return main(arguments)

    pid = forked(limited, output, output)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), output.read_text(errors="replace")


def problem_of(code: int, output: str, path: Path, command: str) -> str:
    """What is wrong with how a command ended; empty if nothing is."""
    lines = output.splitlines()
    if code != 2 and not (code == 1 and command in OPERATION_ERRORS):
        return f"exit code {code}"
    if "Traceback" in output or not 1 <= len(lines) <= MAX_LINES:
        return f"{len(lines)} lines"
    if max(map(len, lines)) > MAX_LINE_CHARACTERS:
        return "a line too long"
    return "" if str(path) in output else "the file is not named"


# What the others are is read in the same way, and is more of it.
USUAL_FILES = {
    "huge",
    "empty",
    "binary",
    "folder",
    "named pipe",
    "link to a device",
    "missing",
    "deep JSON",
    "5,000 digits",
    "infinity",
    "damaged database",
    "archive",
}


@pytest.mark.parametrize(
    "file", [pytest.param(file, marks=[] if file in USUAL_FILES else pytest.mark.exhaustive) for file in FILES]
)
def test_a_hostile_file_is_an_error_that_names_it_in_bounded_memory_and_time(file: str, tmp_path: Path) -> None:
    valid_inputs(tmp_path)
    FILES[file](tmp_path / "hostile")
    found = {}
    for command, (names, arguments) in COMMANDS.items():
        path = tmp_path / "hostile"
        if names:
            path = tmp_path / command.replace(" ", "-")
            files = [path / name for name in names.split()]
            for each in files:
                each.parent.mkdir(parents=True, exist_ok=True)
                FILES[file](each)
            if not os.path.lexists(files[0]):
                # A folder without it is a new output folder, or the name of a job.
                continue
        code, output = ended(tmp_path, [argument.format(path) for argument in arguments])
        if problem := problem_of(code, output, path, command):
            found[command] = (problem, output[-700:])
    assert found == {}
