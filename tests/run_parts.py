"""Runs parts of the test suite and says at the end which failed: `python tests/run_parts.py unit … [--beside e2e]`.

A part is a target of the Makefile. A part that fails does not keep the others from running. The part named by
--beside runs at the same time as the others, which follow one another; its output is printed when it has ended, since
two outputs would mix. Each result shows how long the part took and how much processor time its processes used (of
test-e2e without the pods). The exit code is 0 when each part passed, else 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]


class Part:
    """A target of the Makefile that is being run.

    Args:
        target: Its name.
        output: A file that its output goes to; None: this process's own.
    """

    def __init__(self, target: str, output: IO[bytes] | None = None) -> None:
        self.target = target
        self._began_seconds = time.monotonic()
        self._process = subprocess.Popen(
            ["make", "--no-print-directory", target],
            cwd=ROOT,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
        )
        self.passed = False
        self.took_seconds = 0.0
        self.processor_seconds = 0.0
        # In a thread, because the part beside the others ends while those are waited for.
        self._ending = threading.Thread(target=self._await_end, daemon=True)
        self._ending.start()

    def wait(self) -> None:
        """Wait until it has ended."""
        self._ending.join()

    def _await_end(self) -> None:
        _, status, usage = os.wait4(self._process.pid, 0)
        self.took_seconds = time.monotonic() - self._began_seconds
        self.processor_seconds = usage.ru_utime + usage.ru_stime
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self.passed = self._process.returncode == 0

    def line(self) -> str:
        """Its result in one line."""
        word = "passed" if self.passed else "FAILED"
        return f"{word}  {self.target}  {duration(self.took_seconds)}, processors {duration(self.processor_seconds)}"


def duration(seconds: float) -> str:
    """In minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s"


def run(targets: Sequence[str], beside: str | None) -> list[Part]:
    """Run the targets one after the other, and one beside them; the result of each."""
    with tempfile.TemporaryFile() as output:
        parallel = None if beside is None else Part(beside, output)
        parts = []
        for target in targets:
            part = Part(target)
            part.wait()
            parts.append(part)
        if parallel is not None:
            parallel.wait()
            output.seek(0)
            sys.stdout.flush()
            sys.stdout.buffer.write(output.read())
            parts.append(parallel)
    return parts


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="a target of the Makefile, such as test-unit")
    parser.add_argument("--beside", metavar="TARGET", help="a target to run at the same time as the others")
    options = parser.parse_args(arguments)
    try:
        parts = run(options.targets, options.beside)
    except KeyboardInterrupt:
        return 130
    sys.stdout.write("".join(f"{part.line()}\n" for part in parts))
    return 0 if all(part.passed for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main())
