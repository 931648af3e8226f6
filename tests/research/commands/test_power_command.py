import json
from pathlib import Path

import pytest

from wattloop.commands.main import main


def test_it_prints_one_json_object_with_the_cost_at_eta(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "profile.csv"
    file.write_text("power_limit_watts,energy_joules,time_seconds,gpus\n100,800,20,2\n200,1000,10,2\n")
    code = main(["power", "select", "--profile", str(file), "--selector", "energy", "--eta", "0.25"])
    document = json.loads(capsys.readouterr().out)
    measurements = document.pop("measurements")
    assert code == 0
    assert document == {
        "power_limit_watts": 100,
        "energy_joules": 800,
        "time_seconds": 20,
        "cost_joules": 0.25 * 800 + 0.75 * 400 * 20,
        "selector": "energy",
    }
    assert [m["power_limit_watts"] for m in measurements] == [100, 200]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--eta", "2"], "eta is 2"),
        (["--selector", "max-slowdown", "--factor", "0.5"], "factor is 0.5"),
        (["--profile", "absent.csv"], "absent.csv"),
    ],
)
def test_wrong_usage_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    file = tmp_path / "profile.csv"
    file.write_text("power_limit_watts,energy_joules,time_seconds\n100,800,20\n")
    assert main(["power", "select", "--profile", str(file), *options]) == 2
    assert message in capsys.readouterr().err
