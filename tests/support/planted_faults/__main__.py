"""Plants faults in a copy of the tree, one at a time, and says which of the two sets of tests finds each.

The tests that reach a fault's line are run, those of the usual set first, until one fails. What they reach was recorded
by `support.planted_faults.contexts`:

    PYTHONPATH=tests .venv/bin/python -m support.planted_faults --contexts build/contexts/.coverage --output faults.csv

Started again with the same output, it goes on with the faults that are not in it yet.
"""

import argparse
import concurrent.futures
import csv
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from coverage import CoverageData

from support.planted_faults.mutations import Fault, draw

ROOT = Path(__file__).parents[3]
PACKAGES = [
    "client/wattloop",
    "operator/wattloop_operator",
    "agent/wattloop_agent",
    "planner/wattloop_planner",
    "research/wattloop_research",
    "simulator/nvml_simulator",
]
NOT_COPIED = (".git", ".venv*", "build", "dist", "__pycache__", "demo-output", "fuzz-output", ".*_cache")
# A statement of several lines may have its events at its first line.
LINES_OF_A_STATEMENT = 6
COLUMNS = ("fault", "found_by", "test", "reached_by", "seconds")
SETS = ("usual", "exhaustive")


class Copy:
    """A copy of the tree, in which faults are planted and tests run."""

    def __init__(self, folder: Path) -> None:
        self._root = folder
        shutil.copytree(ROOT, self._root, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
        for environment in ROOT.glob(".venv*"):
            (self._root / environment.name).symlink_to(environment)

    def collected(self) -> set[str]:
        """The names of all tests that there are; what was recorded may name others."""
        command = [str(ROOT / ".venv/bin/python"), "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
        printed = subprocess.run(command, cwd=self._root, capture_output=True, text=True, check=True).stdout
        return {line for line in printed.splitlines() if "::" in line}

    def failed_test(self, fault: Fault, tests: Sequence[str], chosen: str, limit_seconds: float) -> tuple[str, bool]:
        """The first of these tests that fails with a fault, or an empty text; and whether all ran in time.

        Args:
            chosen: The set of which they are run.
        """
        path = self._root / fault.path
        source = path.read_bytes()
        path.write_bytes(fault.planted_in(source))
        try:
            return self._first_failed(tests, chosen, limit_seconds)
        finally:
            path.write_bytes(source)

    def _first_failed(self, tests: Sequence[str], chosen: str, limit_seconds: float) -> tuple[str, bool]:
        names = self._root / "tests.txt"
        names.write_text("".join(f"{test}\n" for test in tests), encoding="utf-8")
        packages = [str(self._root / Path(package).parent) for package in PACKAGES]
        command = [str(ROOT / ".venv/bin/python"), "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no"]
        try:
            ended = subprocess.run(
                [*command, f"--set={chosen}", "--timeout=120", f"@{names}"],
                cwd=self._root,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(packages)},
                capture_output=True,
                text=True,
                timeout=limit_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "", False
        for line in ended.stdout.splitlines():
            if line.startswith(("FAILED ", "ERROR ")):
                return line.split(" - ")[0].split(" ", 1)[1], True
        # 5: none of the tests is in this set.
        return ("" if ended.returncode in (0, 5) else f"pytest ended with {ended.returncode}"), True


def reaching_tests(contexts: CoverageData, fault: Fault) -> list[str]:
    """The tests that reach a fault's line, those of the package's own folder first."""
    by_line = contexts.contexts_by_lineno(str(ROOT / fault.path))
    lines: Iterable[int] = range(fault.line, fault.last_line + 1)
    for _ in range(LINES_OF_A_STATEMENT):
        tests = {test for line in lines for test in by_line.get(line, []) if "::" in test}
        if tests:
            break
        lines = [min(lines) - 1]
    _, _, inside = fault.path.partition("/")
    words = set(Path(inside).with_suffix("").parts)
    return sorted(tests, key=lambda test: (-len(words & set(Path(test.partition("::")[0]).parts)), test))


def result_of(copy: Copy, fault: Fault, tests: Sequence[str], limit_seconds: float) -> tuple[str, str]:
    """Which set finds a fault, and its first test that does; `nobody`, or `undecided` if the time did not suffice."""
    if not tests:
        return "nobody", ""
    for chosen in SETS:
        test, in_time = copy.failed_test(fault, tests, chosen, limit_seconds)
        if test:
            return chosen, test
        if not in_time:
            return "undecided", ""
    return "nobody", ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=Path, required=True, metavar="FILE", help="what coverage combine wrote")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="a CSV file, a row a fault")
    parser.add_argument("--faults", type=int, default=100, metavar="N", help="how many are planted (100)")
    parser.add_argument("--seed", type=int, default=1, help="another one draws others (1)")
    parser.add_argument("--limit", type=float, default=300.0, metavar="SECONDS", help="for the tests of a set (300)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="faults that are tried at a time (1)")
    options = parser.parse_args(arguments)
    if not options.contexts.is_file():
        parser.error(f"{options.contexts}: there is no such file; record one with support.planted_faults.contexts")
    contexts = CoverageData(str(options.contexts))
    contexts.read()
    known: set[str] = set()
    if options.output.exists():
        with options.output.open(encoding="utf-8", newline="") as file:
            known = {row["fault"] for row in csv.DictReader(file)}
    faults = [fault for fault in draw(ROOT, PACKAGES, options.faults, options.seed) if str(fault) not in known]
    with tempfile.TemporaryDirectory() as folder, options.output.open("a", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        if not known:
            rows.writerow(COLUMNS)
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for number in range(options.workers):
            copies.put(Copy(Path(folder) / str(number)))

        first = copies.get()
        there = first.collected()
        copies.put(first)

        def row_of(fault: Fault) -> tuple[str, str, str, int, float]:
            copy, began = copies.get(), time.monotonic()
            tests = [test for test in reaching_tests(contexts, fault) if test in there]
            try:
                found_by, test = result_of(copy, fault, tests, options.limit)
            finally:
                copies.put(copy)
            return str(fault), found_by, test, len(tests), round(time.monotonic() - began, 1)

        with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
            for done in concurrent.futures.as_completed(pool.submit(row_of, fault) for fault in faults):
                rows.writerow(done.result())
                file.flush()
                print(*done.result()[1::-1], file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
