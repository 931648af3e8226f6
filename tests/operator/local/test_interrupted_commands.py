"""Real commands that are interrupted at random times exit with 130 and leave nothing."""

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.agents.agent_fixture import until
from support.local_runs.local_runs import TRAINING, LocalJob

pytestmark = pytest.mark.processes

DATA = Path(__file__).resolve().parents[2] / "data"
MARKER = "WATTLOOP_TEST_MARKER"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Before Python runs the first line of the program, the program cannot handle signals.
BEGIN_SECONDS = 60.0
# Long enough to distinguish a process that hangs from a slow one on a busy machine.
END_SECONDS = 60.0


@dataclass
class Command:
    """A `wattloop` command in a session of its own, like a terminal's job.

    Attributes:
        process: The command.
        folder: Its working directory.
    """

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr").read_text()

    def handles_signals(self) -> bool:
        if self.process.poll() is not None:
            return True
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt:")).split()[1], 16)
        return bool(caught >> (signal.SIGHUP - 1) & 1)

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends by itself within this time after it handles signals."""
        until(self.handles_signals, "the command handles SIGHUP", BEGIN_SECONDS)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def remaining_processes(self) -> dict[int, str]:
        """All running processes that it has started, directly or indirectly."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARKER}={self.folder}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
        return found


Start = Callable[..., Command]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Command] = []
    with tempfile.TemporaryDirectory(prefix="wl-", dir="/tmp") as private:

        def begin(*arguments: str) -> Command:
            environment = {**os.environ, "TMPDIR": private, MARKER: str(tmp_path)}
            with (tmp_path / "stderr").open("wb") as stderr, (tmp_path / "stdout").open("wb") as out:
                process = subprocess.Popen(
                    [str(Path(sys.executable).parent / "wattloop"), *arguments],
                    cwd=tmp_path,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=stderr,
                    start_new_session=True,
                )
            started.append(Command(process, tmp_path))
            return started[-1]

        yield begin
        for command in started:
            if command.process.poll() is None:
                command.process.kill()
                command.process.wait()
            until(lambda: not command.remaining_processes(), "every process has ended", END_SECONDS)  # noqa: B023 - called at once
            assert list(Path(private).iterdir()) == []


def run(folder: Path) -> list[str]:
    local_job = LocalJob(folder, draws_plots=True)
    local_job.job(TRAINING)
    return local_job.arguments("--recurrences", "2")


def simulate(folder: Path) -> list[str]:
    traces = DATA / "zeus-traces"
    job = "--dataset cifar100 --network shufflenetv2 --optimizer adadelta --target-metric 0.6 --max-epochs 100"
    files = ["--train", str(traces / "summary_train.csv"), "--power", str(traces / "summary_power_a40.csv")]
    arguments = [*files, *job.split(), "--default-batch-size", "1024"]
    return ["simulate", *arguments, "--recurrences", "600", "--seeds", "1-8", "--output", str(folder / "out.csv")]


def plan(folder: Path) -> list[str]:
    profile = DATA / "perseus" / "stage_profile" / "gpt3-175b+a100_sxm_bf16.csv"
    options = f"--profile {profile} --stages 8 --microbatches 24 --blocking-power 83.64 --baselines --pictures"
    return ["plan", *options.split(), "--output", str(folder / "plans")]


def agent(folder: Path) -> list[str]:
    return ["agent", "--socket", str(folder / "agent.sock"), "--state-directory", str(folder / "state")]


def validate(folder: Path) -> list[str]:
    return ["validate", str(LocalJob(folder).job(TRAINING))]


# The approximate duration of each command, in seconds, and the number of cases.
COMMANDS: dict[str, tuple[Callable[[Path], list[str]], float, int]] = {
    "run": (run, 6.0, 10),
    "simulate": (simulate, 5.0, 5),
    "plan": (plan, 6.0, 5),
    "agent": (agent, 2.0, 4),
    "validate": (validate, 1.0, 3),
}
# In the midst of each command.
USUAL_CASES = {"run-5", "simulate-4", "plan-3", "agent-0", "validate-1"}
CASES = [
    pytest.param(
        make,
        random.Random(f"{name} {case}").uniform(0, longest),
        SIGNALS[case % 3],
        id=f"{name}-{case}",
        marks=[] if f"{name}-{case}" in USUAL_CASES else pytest.mark.exhaustive,
    )
    for name, (make, longest, cases) in COMMANDS.items()
    for case in range(cases)
]


@pytest.mark.parametrize(("make", "seconds", "number"), CASES)
def test_a_signal_at_any_time_ends_a_command_with_130_and_leaves_nothing(
    start: Start, tmp_path: Path, make: Callable[[Path], list[str]], seconds: float, number: int
) -> None:
    command = start(*make(tmp_path))
    if not command.ends_within(seconds):
        # As from a terminal, every process of the group gets the signal.
        os.killpg(command.process.pid, number)
    code = command.process.wait(END_SECONDS)
    assert code in {0, 130}, command.stderr
    assert "Traceback" not in command.stderr
    assert "Error" not in command.stderr
    if code == 130 and make is not agent:
        assert re.search(rf"^wattloop( {make.__name__})?: interrupted", command.stderr, re.MULTILINE)
    assert list(tmp_path.rglob("*.part")) == []
    assert not (tmp_path / "agent.sock").exists()
    plans = tmp_path / "plans"
    assert not plans.exists() or (plans / "summary.json").exists(), "a result is complete or does not exist"


def test_a_second_signal_ends_a_run_at_once_and_its_processes_end_by_themselves(start: Start, tmp_path: Path) -> None:
    command = start(*run(tmp_path))
    until(
        lambda: any("train.py" in each for each in command.remaining_processes().values()),
        "a training runs",
        END_SECONDS,
    )
    command.process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + END_SECONDS
    while command.process.poll() is None and time.monotonic() < deadline:
        # Later than signals that count as the same request.
        if not command.ends_within(0.2):
            command.process.send_signal(signal.SIGTERM)
    assert command.process.wait(END_SECONDS) == 130
    assert "Traceback" not in command.stderr
