"""Runs parts of the test suite and says at the end which failed: `python tests/run_parts.py unit … --beside e2e`.

A part is a target of the Makefile. Each runs, whatever becomes of the others. A part whose tests wait more than they
compute leaves a core idle. Therefore each part named by --beside runs at the same time as the others, which follow one
another; its output is printed when all have ended, since outputs would mix. The end names each failed test and its
error, since whoever sees only the last lines must know what failed. Each result shows how long the part took and how
much processor time its processes used (of test-e2e without the pods); below are the slowest tests, and the last line
says how busy the machine's processors were meanwhile. All times are in build/test-times. The exit code is 0 when each
part passed, else 1.
"""

import argparse
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

from support.test_sets.recorded_times import TIMES, TestTime, slowest_lines, times_of, write_times

ROOT = Path(__file__).parents[1]
ERROR_CHARACTERS = 200


class Part:
    """A target of the Makefile that is being run.

    Args:
        target: Its name.
        results: The folder in which pytest leaves its results.
        variables: Variables of the Makefile, such as `SET=exhaustive`.
        output: A file that its output goes to; None: this process's own.
    """

    def __init__(
        self, target: str, results: Path, variables: Sequence[str] = (), output: IO[bytes] | None = None
    ) -> None:
        self.target = target
        self._results = results / f"{target}.xml"
        own = os.environ.get("PYTEST_ADDOPTS", "")
        self._began_seconds = time.monotonic()
        self._process = subprocess.Popen(
            ["make", "--no-print-directory", *variables, target],
            cwd=ROOT,
            env=os.environ | {"PYTEST_ADDOPTS": f"{own} --junit-xml={shlex.quote(str(self._results))}"},
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

    def failures(self) -> Iterator[str]:
        """A line for each test that failed: its name and the beginning of its error."""
        try:
            cases = ElementTree.parse(self._results).iter("testcase")
        except (FileNotFoundError, ElementTree.ParseError):
            # Pytest did not begin or was killed. The part's output has the cause.
            return
        for case in cases:
            for found in (*case.iterfind("failure"), *case.iterfind("error")):
                error = " ".join(found.get("message", "").split())[:ERROR_CHARACTERS]
                yield f"FAILED  {case.get('classname')}::{case.get('name')}: {error}"

    def times(self) -> list[TestTime]:
        """The times of the part and of each of its tests."""
        whole = TestTime(self.target, "", self.took_seconds, self.processor_seconds)
        return [whole, *times_of(self.target, self._results)]


def duration(seconds: float) -> str:
    """In minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s"


def run(targets: Sequence[str], beside: Sequence[str], results: Path, variables: Sequence[str]) -> list[Part]:
    """Run the targets one after the other, and those of `beside` at the same time; each of them, ended.

    Args:
        targets: Those that follow one another.
        beside: Those that run at the same time.
        results: The folder of pytest's results.
        variables: Variables of the Makefile.
    """
    with contextlib.ExitStack() as outputs:
        buffered = [(target, outputs.enter_context(tempfile.TemporaryFile())) for target in beside]
        parallel = [Part(target, results, variables, output) for target, output in buffered]
        parts = []
        for target in targets:
            part = Part(target, results, variables)
            part.wait()
            parts.append(part)
        for part, (_, output) in zip(parallel, buffered, strict=True):
            part.wait()
            output.seek(0)
            sys.stdout.flush()
            shutil.copyfileobj(output, sys.stdout.buffer)
    return parts + parallel


def processor_seconds() -> tuple[float, float]:
    """The seconds that all processors of this machine together have worked, and that they have been there."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
    user, nice, system, idle, waiting, *rest = (int(field) / os.sysconf("SC_CLK_TCK") for field in fields)
    worked = user + nice + system + sum(rest)
    return worked, worked + idle + waiting


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="a target of the Makefile, such as test-unit")
    parser.add_argument(
        "--beside",
        metavar="TARGET",
        action="append",
        default=[],
        help="a target to run at the same time as the others; may be repeated",
    )
    parser.add_argument("--set", choices=("usual", "exhaustive"), default="usual", help="of which tests run (usual)")
    parser.add_argument("--share", metavar="COMMIT", help="run the tenth of the exhaustive set that this commit draws")
    options = parser.parse_args(arguments)
    variables = [f"SET={options.set}"]
    if options.share:
        variables.append(f"SHARE={options.share}")
        sys.stdout.write(f"a share of the exhaustive set; to repeat it: make test-share COMMIT={options.share}\n")
        sys.stdout.flush()
    worked, there = processor_seconds()
    with tempfile.TemporaryDirectory() as results:
        try:
            parts = run(options.targets, options.beside, Path(results), variables)
        except KeyboardInterrupt:
            return 130
        failed = [failure for part in parts for failure in part.failures()]
        times = [each for part in parts for each in part.times()]
    write_times(TIMES / f"{'share' if options.share else options.set}.csv", times)
    lines = [*failed, *(part.line() for part in parts), "the slowest tests:", *slowest_lines(times)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    worked, there = (after - before for after, before in zip(processor_seconds(), (worked, there), strict=True))
    sys.stdout.write(f"the machine's processors worked {duration(worked)}, {worked / there:.0%} of the time\n")
    return 0 if all(part.passed for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main())
