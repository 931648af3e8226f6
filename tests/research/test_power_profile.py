"""Measured power profiles are read from CSV and JSON, and errors name the place."""

import json
from pathlib import Path

import pytest

from wattloop.errors import InputError
from wattloop.power.selectors import MeasuredLimit
from wattloop_research.command_line.power import read_power_profile

BAD = {
    "no such column": ("power_limit_watts,energy_joules\n100,1\n", "line 1, column time_seconds"),
    "not a number": ("power_limit_watts,energy_joules,time_seconds\n100,x,1\n", "line 2, column energy_joules"),
    "negative": ("power_limit_watts,energy_joules,time_seconds\n100,1,-1\n", "line 2, column time_seconds"),
    "limit twice": ("power_limit_watts,energy_joules,time_seconds\n100,1,1\n100,2,2\n", "line 3"),
    "half a GPU": ("power_limit_watts,energy_joules,time_seconds,gpus\n100,1,1,1.5\n", "line 2, column gpus"),
    "header only": ("power_limit_watts,energy_joules,time_seconds\n", "line 2"),
    "empty": ("", "line 1, column 1"),
    "window without limit": ("window_name,elapsed_time,gpu0_energy\nwarmup,1,1\n", "line 2, column window_name"),
    "window of a limit beyond floats": (
        f"window_name,elapsed_time,gpu0_energy\na_{'9' * 5000},1,1\n",
        "line 2, column window_name",
    ),
    "thousands of digits": (
        f"power_limit_watts,energy_joules,time_seconds\n{'9' * 5000},1,1\n",
        "line 2, column power_limit_watts",
    ),
    "window without GPU": ("window_name,elapsed_time\na_100,1\n", "line 1"),
}
ENTRY = {"power_limit_watts": 200.0, "energy_joules": 5.0, "time_seconds": 0.1}


def test_the_plain_format_may_have_any_order_of_columns_and_rows(tmp_path: Path) -> None:
    file = tmp_path / "profile.csv"
    file.write_text("gpus,time_seconds,note,energy_joules,power_limit_watts\n4,10,a,500,300\n4,12,b,400,150\n")
    assert read_power_profile(file) == (MeasuredLimit(150, 400, 12, 4), MeasuredLimit(300, 500, 10, 4))


def test_recorded_windows_are_read(power_profiles: Path) -> None:
    measurements = read_power_profile(power_profiles / "A40+resnet18+gpu0,1,2,3.csv")
    assert [m.power_limit_watts for m in measurements] == [100, 125, 150, 175, 200, 225, 250, 275, 300]
    top = measurements[-1]
    assert (top.gpus, top.time_seconds) == (4, 33.27751154080033)
    assert top.energy_joules == pytest.approx(3991.397 + 4170.07 + 4255.888 + 4102.665, abs=0.01)


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_profile_is_rejected_with_its_position(tmp_path: Path, name: str) -> None:
    text, place = BAD[name]
    file = tmp_path / "profile.csv"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_power_profile(file)
    assert f"profile.csv: {place}:" in str(caught.value)
    assert len(str(caught.value)) - len(str(file)) < 300


def test_measurements_are_read_by_rising_limit_and_other_keys_ignored(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    low = {**ENTRY, "power_limit_watts": 100, "gpus": 4, "windows": 3}
    file.write_text(json.dumps({"doubt": 0.1, "measurements": [ENTRY, low]}))
    assert read_power_profile(file) == (MeasuredLimit(100.0, 5.0, 0.1, 4), MeasuredLimit(200.0, 5.0, 0.1))


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
        read_power_profile(file)
