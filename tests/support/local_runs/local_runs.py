"""`wattloop run` on tiny trainings in a folder of its own: in this process, or as a process that can be killed."""

from __future__ import annotations

import csv
import os
import resource
import select
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

import nvml_simulator
from wattloop.commands.main import main

# A training that reaches the target after some epochs: fewer with small batches, as real ones do.
TRAINING = """
import wattloop
import nvml_simulator
with wattloop.Run(batch_size=8, max_epochs=20) as run:
    for epoch in run.epochs():
        nvml_simulator.occupy(0, work=3120.0 * (32 + run.batch_size) / 64, intensity=0.8)
        run.step()
        run.report(metric=0.1 * (epoch + 1) * (32 / run.batch_size) ** 0.5)
"""
# Beside a training: says that it has begun (its own pid, and that of a child of its own), then does nothing more.
HANGING = """
import os, subprocess, sys, time
import wattloop
with wattloop.Run() as run:
    child = subprocess.Popen(["sleep", "600"])
    with open("begun.part", "w") as begun:
        begun.write(f"{os.getpid()} {child.pid}")
    os.replace("begun.part", "begun")
    time.sleep(600)
"""
END_SECONDS = 90.0
BEGIN_SECONDS = 90.0


@dataclass
class RunProcess:
    """A run in a process of its own.

    Attributes:
        pid: The process.
        told: The file that it writes its words to.
        code: How it ended, negative for a signal; None: not waited for yet.
    """

    pid: int
    told: Path
    code: int | None = None

    def wait_for_end(self, seconds: float) -> bool:
        """Wait at most so long; returns whether it has ended."""
        if self.code is None:
            watch = os.pidfd_open(self.pid)
            poll = select.poll()
            poll.register(watch, select.POLLIN)
            ended = poll.poll(seconds * 1000)
            os.close(watch)
            if ended:
                self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code is not None

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        assert self.wait_for_end(END_SECONDS), f"the run still goes on: {descendants_of(self.pid)}"
        assert self.code is not None
        return self.code

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)


@dataclass
class LocalJob:
    """A folder with a manifest and a training script."""

    folder: Path

    @property
    def manifest(self) -> Path:
        return self.folder / "job.yaml"

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def job(self, script: str = TRAINING, *, name: str = "tiny", **spec: Any) -> Path:
        """Write the manifest and its training; fields of the spec in wire form."""
        (self.folder / "train.py").write_text(script)
        container = {"name": "train", "image": "none", "command": ["python", "train.py"]}
        document = {
            "apiVersion": "wattloop.dev/v1alpha1",
            "kind": "RecurringTrainingJob",
            "metadata": {"name": name},
            "spec": {
                "trigger": {"manual": {}},
                "objective": {"target": {"metric": "accuracy", "threshold": "0.4"}, "maxEpochs": 20},
                "batchSize": {"default": 32, "candidates": [8, 16, 32]},
                "template": {"job": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}},
                **spec,
            },
        }
        YAML().dump(document, self.manifest)
        return self.manifest

    def words(self, *options: str, output: Path | None = None) -> list[str]:
        gpus = [] if "--simulated-gpus" in options else ["--simulated-gpus", "1"]
        return ["run", str(self.manifest), "--output", str(output or self.output), *gpus, *options]

    def run(self, *options: str, output: Path | None = None) -> int:
        """In this process; returns the exit code."""
        return main(self.words(*options, output=output))

    def rows(self, output: Path | None = None) -> list[dict[str, str]]:
        with ((output or self.output) / "recurrences.csv").open(newline="") as stream:
            return list(csv.DictReader(stream))

    def outcomes(self) -> list[tuple[str, str, str]]:
        return [(row["recurrence"], row["attempt"], row["outcome"]) for row in self.rows()]

    def start(self, *options: str, largest_file_bytes: int | None = None) -> RunProcess:
        """As a process of its own, forked: what it would take a second to import is there already.

        With a largest size of its files, the disk is full for each of them that has got so far.
        """
        words = self.words(*options)
        told = self.folder / "stderr"
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                for stream, path in ((0, os.devnull), (1, str(self.folder / "stdout")), (2, str(told))):
                    os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), stream)
                sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
                if largest_file_bytes is not None:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file_bytes, largest_file_bytes))
                code = main(words)
                sys.stdout.flush()
                sys.stderr.flush()
            except BaseException:  # noqa: BLE001 - nothing of pytest may run in this process
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)
        return RunProcess(pid, told)

    def begun(self, run: RunProcess) -> tuple[int, int]:
        """Wait until the hanging training has begun; returns its pid and that of its child."""
        mark = self.folder / "begun"
        deadline = time.monotonic() + BEGIN_SECONDS
        while not mark.exists():
            assert not run.wait_for_end(0.01), run.told.read_text()
            assert time.monotonic() < deadline, "the training did not begin"
        training, child = mark.read_text().split()
        mark.unlink()
        return int(training), int(child)

    def limits(self) -> list[float]:
        """Power limits of the simulated GPUs now."""
        return [gpu.power_limit_watts for gpu in nvml_simulator.describe(self.output / "simulated-gpus").gpus]


def children_of(pid: int) -> list[int]:
    """The processes that this one's threads started."""
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def program_of(pid: int) -> str:
    """The command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def descendants_of(pid: int) -> dict[int, str]:
    """Every process that came of this one, with its command line."""
    found: dict[int, str] = {}
    for child in children_of(pid):
        found[child] = program_of(child)
        found |= descendants_of(child)
    return found


def wait_for_end(pids: list[int]) -> None:
    """Wait until none of these processes, which are not children of ours, runs any more."""
    for pid in pids:
        try:
            watch = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        poll = select.poll()
        poll.register(watch, select.POLLIN)
        ended = poll.poll(END_SECONDS * 1000)
        os.close(watch)
        assert ended, f"{pid} still runs: {program_of(pid)}"


def kill(pid: int) -> None:
    """kill -9."""
    os.kill(pid, signal.SIGKILL)
