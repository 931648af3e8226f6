"""How long tests took, and what is recorded of the exhaustive set, by which a commit's share of it is bounded.

`make test` and `make test-exhaustive` write build/test-times/SET.csv. This makes of those files the page
docs/internals/test-times.md and the table exhaustive_seconds.csv beside this file:

    PYTHONPATH=tests .venv/bin/python -m support.test_sets.recorded_times
"""

import csv
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[3]
TIMES = ROOT / "build/test-times"
RECORDED = Path(__file__).with_name("exhaustive_seconds.csv")
PAGE = ROOT / "docs/internals/test-times.md"
SHOWN = 10
HEADER = ("| part | tests | wall time | processor time | of its tests' wall time |", "|---|---:|---:|---:|---:|")


@dataclass(frozen=True)
class TestTime:
    """What one test took, or a part as a whole.

    Attributes:
        part: The target of the Makefile that ran it.
        test: Its name, as pytest takes it; empty: the part as a whole.
        wall_seconds: From its begin to its end, fixtures included; depends on what else the machine does.
        processor_seconds: Of the test and the processes that it started and waited for.
    """

    __test__ = False

    part: str
    test: str
    wall_seconds: float
    processor_seconds: float


def times_of(part: str, junit: Path) -> list[TestTime]:
    """The times in a JUnit file that `support.test_sets.plugin` completed; none if pytest did not write it."""
    try:
        cases = list(ElementTree.parse(junit).iter("testcase"))
    except (FileNotFoundError, ElementTree.ParseError):
        return []
    found = []
    for case in cases:
        values = {each.get("name", ""): each.get("value", "") for each in case.iter("property")}
        if "identifier" in values:
            seconds = (round(float(values[name]), 3) for name in ("wall_seconds", "processor_seconds"))
            found.append(TestTime(part, values["identifier"], *seconds))
    return found


def write_times(path: Path, times: Iterable[TestTime]) -> None:
    """Write them as CSV, the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    with beside.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(field.name for field in fields(TestTime))
        rows.writerows(map(astuple, times))
    beside.replace(path)


def read_times(path: Path) -> list[TestTime]:
    """What `write_times` wrote."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            TestTime(row["part"], row["test"], float(row["wall_seconds"]), float(row["processor_seconds"]))
            for row in csv.DictReader(file)
        ]


def slowest_lines(times: Iterable[TestTime]) -> Iterator[str]:
    """A line for each of the slowest tests."""
    tests = (each for each in times if each.test)
    for each in sorted(tests, key=lambda each: -each.wall_seconds)[:SHOWN]:
        yield f"{each.wall_seconds:6.1f} s, processors {each.processor_seconds:5.1f} s  {each.part}  {each.test}"


def group_of(test: str) -> str:
    """What a share draws as one: a file of the node's tests, which share one training, or else a test.

    >>> group_of("tests/node/test_kills.py::test_every_gpu_is_restored")
    'tests/node/test_kills.py'
    """
    return test.partition("::")[0] if re.match(r"tests/node/test_\w+\.py", test) else test


def recorded_seconds() -> dict[str, float]:
    """The recorded wall time of each group of tests of the exhaustive set."""
    with RECORDED.open(encoding="utf-8", newline="") as file:
        return {row["group"]: float(row["wall_seconds"]) for row in csv.DictReader(file)}


def record(times: Iterable[TestTime]) -> None:
    """Record the times of a whole run of the exhaustive set."""
    seconds: dict[str, float] = defaultdict(float)
    for each in times:
        if each.test:
            seconds[group_of(each.test)] += each.wall_seconds
    with RECORDED.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("group", "wall_seconds"))
        rows.writerows((group, round(seconds[group], 1)) for group in sorted(seconds))


def page(sets: dict[str, Sequence[TestTime]]) -> str:
    """The page of the times, by command."""
    lines = [
        "# Times of the tests",
        "",
        "`python -m support.test_sets.recorded_times` generates this page from the last whole runs on two cores.",
        "Four parts run at the same time, so the wall times of parts do not add up.",
    ]
    for command, times in sets.items():
        lines += ["", f"## `{command}`", "", *HEADER]
        parts = [each for each in times if not each.test]
        for part in parts:
            tests = [each for each in times if each.part == part.part and each.test]
            count, waited = len(tests), sum(each.wall_seconds for each in tests)
            used = sum(each.processor_seconds for each in tests)
            lines.append(
                f"| {part.part} | {count} | {_minutes(part.wall_seconds)} | {_minutes(part.processor_seconds)} "
                f"| {used / max(waited, 1.0):.0%} |"
            )
        processors = sum(each.processor_seconds for each in parts)
        lines.append(f"| all | {len(times) - len(parts)} | | {_minutes(processors)} | |")
        lines += ["", "The slowest tests:", "", "```", *slowest_lines(times), "```"]
    return "\n".join(lines) + "\n"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"


def main() -> int:
    """Write the page and the table of what was run last."""
    commands = {"usual": "make test", "exhaustive": "make test-exhaustive"}
    measured = {name: read_times(path) for name in commands if (path := TIMES / f"{name}.csv").exists()}
    if not measured:
        print(f"there is nothing in {TIMES}; run make test or make test-exhaustive first", file=sys.stderr)
        return 1
    if "exhaustive" in measured:
        record(measured["exhaustive"])
    PAGE.write_text(page({commands[name]: times for name, times in measured.items()}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
