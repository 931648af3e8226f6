"""JSON profiles are read, and errors name the place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wattloop.errors import InputError
from wattloop.power.selectors import MeasuredLimit
from wattloop_planner.power_profile import read_profile

ENTRY = {"power_limit_watts": 200.0, "energy_joules": 5.0, "time_seconds": 0.1}


def test_measurements_are_read_by_rising_limit_and_other_keys_ignored(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    low = {**ENTRY, "power_limit_watts": 100, "gpus": 4, "windows": 3}
    file.write_text(json.dumps({"doubt": 0.1, "measurements": [ENTRY, low]}))
    assert read_profile(file).measurements == (MeasuredLimit(100.0, 5.0, 0.1, 4), MeasuredLimit(200.0, 5.0, 0.1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected a JSON object with a list measurements"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "expected a JSON object with a list measurements of at least one object"),
        ('{"measurements": []}', "of at least one object"),
        ('{"measurements": [7]}', r"7 at measurements\[0\]"),
        (json.dumps({"measurements": [{**ENTRY, "energy_joules": -1}]}), r"measurements\[0\].energy_joules"),
        (json.dumps({"measurements": [{**ENTRY, "time_seconds": float("nan")}]}), r"measurements\[0\].time_seconds"),
        (json.dumps({"measurements": [{**ENTRY, "energy_joules": True}]}), r"measurements\[0\].energy_joules"),
        (json.dumps({"measurements": [{**ENTRY, "gpus": 0}]}), r"measurements\[0\].gpus"),
        (json.dumps({"measurements": [ENTRY, ENTRY]}), r"200 W again in measurements\[1\]"),
    ],
)
def test_an_error_names_the_place(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "profile.json"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_profile(file)
