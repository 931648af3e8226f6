"""`wattloop run` of small trainings, in this process or in a process that can be killed."""

import csv
import os
import resource
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

import nvml_simulator
from support.agents import processes
from support.agents.processes import children_of, program_of
from support.forked_process import forked
from wattloop.commands.main import main

# A training that reaches the target after some epochs: fewer with small batches.
TRAINING = """
import wattloop
import nvml_simulator
with wattloop.Run(batch_size=8, max_epochs=20) as run:
    for epoch in run.epochs():
        nvml_simulator.occupy(0, work=3120.0 * (32 + run.batch_size) / 64, intensity=0.8)
        run.step()
        run.report(metric=0.1 * (epoch + 1) * (32 / run.batch_size) ** 0.5)
"""
# A training that writes its pid and the pid of a child process to a file, and then hangs.
HANGING = """
import os, subprocess, sys, time
import wattloop
with wattloop.Run() as run:
    # One in a session of its own, as torchrun starts its ranks, and one in the group without the environment.
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    subprocess.Popen(["sleep", "600"], env={})
    with open("begun.part", "w") as begun:
        begun.write(f"{os.getpid()} {child.pid}")
    os.replace("begun.part", "begun")
    time.sleep(600)
"""
END_SECONDS = 90.0
BEGIN_SECONDS = 90.0


@dataclass
class RunProcess:
    """A run in a separate process.

    Attributes:
        stderr: The file of its standard error.
        code: Its exit code, negative for a signal; None if it was not waited for yet.
    """

    pid: int
    stderr: Path
    code: int | None = None

    def wait_for_end(self, seconds: float) -> bool:
        """Wait for at most this time, and return whether it has ended."""
        if self.code is None:
            descriptor = os.pidfd_open(self.pid)
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            ended = poll.poll(seconds * 1000)
            os.close(descriptor)
            if ended:
                self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code is not None

    def ended(self) -> int:
        """Wait until it has ended, and return its exit code."""
        assert self.wait_for_end(END_SECONDS), f"the run has not ended: {descendants_of(self.pid)}"
        assert self.code is not None
        return self.code

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)


@dataclass
class LocalJob:
    """A folder with a manifest and a training script, for a command of the local mode.

    Attributes:
        draws_plots: Whether runs draw their plots, a third of a short run's processor time.
    """

    folder: Path
    command: str = "run"
    draws_plots: bool = False

    @property
    def manifest(self) -> Path:
        return self.folder / "job.yaml"

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def job(self, script: str = TRAINING, *, name: str = "tiny", **spec: Any) -> Path:
        """Write the manifest and its training script. The fields of the spec are in wire form."""
        (self.folder / "train.py").write_text(script)
        container = {"name": "train", "image": "none", "command": ["python", "train.py"]}
        document = {
            "apiVersion": "wattloop.dev/v1alpha1",
            "kind": "RecurringTrainingJob",
            "metadata": {"name": name},
            "spec": {
                "objective": {"target": {"metric": "accuracy", "threshold": "0.4"}, "maxEpochs": 20},
                "template": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}},
                **spec,
                "batchSize": {"default": 32, "candidates": [8, 16, 32], **spec.get("batchSize", {})},
            },
        }
        YAML().dump(document, self.manifest)
        return self.manifest

    def arguments(self, *options: str, output: Path | None = None) -> list[str]:
        gpus = [] if "--simulated-gpus" in options else ["--simulated-gpus", "1"]
        plots = [] if self.draws_plots or self.command != "run" else ["--no-plots"]
        return [self.command, str(self.manifest), "--output", str(output or self.output), *gpus, *plots, *options]

    def run(self, *options: str, output: Path | None = None) -> int:
        """Run in this process, and return the exit code."""
        return main(self.arguments(*options, output=output))

    def rows(self, output: Path | None = None) -> list[dict[str, str]]:
        with ((output or self.output) / "recurrences.csv").open(newline="") as stream:
            return list(csv.DictReader(stream))

    def outcomes(self) -> list[tuple[str, str, str]]:
        return [(row["recurrence"], row["attempt"], row["outcome"]) for row in self.rows()]

    def start(self, *options: str, max_file_bytes: int | None = None, output: Path | None = None) -> RunProcess:
        """Run in a forked process, which saves the time of imports.

        A maximum file size simulates a full disk for each file that reaches it.
        """
        arguments = self.arguments(*options, output=output)
        stderr = self.folder / "stderr"

        def limited() -> int:
            if max_file_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
            return main(arguments)

        return RunProcess(forked(limited, self.folder / "stdout", stderr), stderr)

    def wait_for_training(self, run: RunProcess) -> tuple[int, int]:
        """Wait until the hanging training has begun, and return its pid and that of its child."""
        begun = self.folder / "begun"
        deadline = time.monotonic() + BEGIN_SECONDS
        while not begun.exists():
            assert not run.wait_for_end(0.01), run.stderr.read_text()
            assert time.monotonic() < deadline, "the training did not begin"
        training, child = begun.read_text().split()
        begun.unlink()
        return int(training), int(child)

    def limits(self) -> list[float]:
        """Current power limits of the simulated GPUs."""
        return [gpu.power_limit_watts for gpu in nvml_simulator.describe(self.output / "simulated-gpus").gpus]


def descendants_of(pid: int) -> dict[int, str]:
    """All descendants of a process, with their command lines."""
    found: dict[int, str] = {}
    for child in children_of(pid):
        found[child] = program_of(child)
        found |= descendants_of(child)
    return found


def wait_for_end(pids: list[int]) -> None:
    """Wait until all of these processes, which are no children of this one, have ended."""
    for pid in pids:
        processes.wait_for_end(pid, END_SECONDS)


def kill(pid: int) -> None:
    """Send SIGKILL."""
    os.kill(pid, signal.SIGKILL)
