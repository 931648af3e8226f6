"""A file in place of a power profile, which any process may have written: one line says why it is not used."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from wattloop.power.profile_result import LimitEstimate, ProfileResult, read_result, stored_result
from wattloop.power.selectors import Energy

LIMITS = (300.0, 200.0)
ESTIMATES = tuple(LimitEstimate(watts, watts, (watts, watts), 1.0, (0.9, 1.1), 2, 4) for watts in LIMITS)
RESULT = ProfileResult(300.0, 0.01, 0.02, "Certain", "Energy", "Measured", 8.0, ESTIMATES)


def text(content: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(content)

    return write


def with_value(name: str, value: object) -> Callable[[Path], None]:
    return text(json.dumps({**json.loads(RESULT.as_json()), name: value}))


def with_measured(name: str, value: object) -> Callable[[Path], None]:
    document = json.loads(RESULT.as_json())
    document["measurements"][1][name] = value
    return text(json.dumps(document))


def nested(levels: int) -> object:
    found: list[object] = []
    for _ in range(levels):
        found = [found]
    return found


def huge(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(100 * 1024**3)


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (text("[" * 100_000), "expected a profile that a PowerLimitOptimizer has written"),
        (text("[" * 300_000), "MiB of memory"),
        (text("[]"), "the message: found a list, expected an object"),
        (text('"\x1b[2J"'), "invalid JSON"),
        (text("1" * 5_000), "a whole number of more than"),
        (huge, "at most 1048576 bytes"),
        (os.mkfifo, "it is a named pipe"),
        # Not too deep for the parser, and too deep for a copy of the result.
        (with_value("doubt", nested(400)), "doubt: found a list, expected a finite number"),
        (
            with_value("reason", "\x1b[2J\nevil"),
            "reason: found '\\x1b[2J\\nevil', expected one of Certain, BudgetSpent",
        ),
        (with_value("\x1b[2J\n", 1), "the unknown field '\\x1b[2J\\n'"),
        (with_value("measurements", []), "measurements: found none"),
        (with_value("measurements", {"a": 1}), "measurements: found an object, expected a list"),
        (with_measured("energy_joules", float("nan")), "measurements[1].energy_joules: found nan"),
        (with_measured("energy_joules", 10**400), "measurements[1].energy_joules: found a number of 1329 bits"),
        (with_measured("energy_interval_joules", "ab"), "energy_interval_joules: found 'ab', expected a list"),
        (with_measured("gpus", 2.5), "measurements[1].gpus: found 2.5, expected a whole number"),
        (with_measured("gpus", True), "measurements[1].gpus: found True"),
    ],
)
def test_another_file_is_one_warning_that_names_it_and_the_limits_are_measured_again(
    write: Callable[[Path], None], problem: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "profile.json"
    write(path)
    assert stored_result(path, LIMITS, Energy()) is None
    (record,) = caplog.records
    line = record.getMessage()
    assert line.startswith(f"the power limits are measured again: {path}: ")
    assert problem in line
    assert line.isprintable()


def test_a_written_result_is_read_as_it_was(tmp_path: Path) -> None:
    RESULT.write(tmp_path / "profile.json")
    assert read_result(tmp_path / "profile.json") == RESULT
