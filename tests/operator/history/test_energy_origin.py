"""What a view says about energies that are those of an idle simulated GPU, or of shared ones."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nvml_simulator
from wattloop_operator.history.cost_history import summary
from wattloop_operator.history.energy_origin import IDLE_NOTE, IDLE_WATTS, EnergyOrigin, energy_note
from wattloop_operator.history.rows import json_object, rows_of, write_csv
from wattloop_operator.plots import write_plots

Make = Callable[..., Any]
IDLE = {
    "gpu_product": "NVIDIA A100-SXM4-80GB",
    "max_power_watts": 400.0,
    "energy_joules": 5505.0,
    "time_seconds": 100.0,
}


def test_the_idle_power_of_every_model_is_that_of_the_simulator() -> None:
    assert {model.name: model.idle_watts for model in nvml_simulator.models()} == IDLE_WATTS


@pytest.mark.parametrize(
    ("changes", "origin", "expected"),
    [
        ({}, "simulated", "simulated-idle"),
        # The virtual clock stood still.
        ({"energy_joules": 0.0, "time_seconds": 0.0}, "simulated", "simulated-idle"),
        ({"energy_joules": 11_000.0, "gpu_count": 2}, "simulated", "simulated-idle"),
        ({"energy_joules": 11_000.0}, "simulated", "simulated"),
        # A declared load may be small; a real GPU may be idle.
        ({}, "simulated-load", "simulated-load"),
        ({}, "gpu", "gpu"),
        ({}, None, None),
        # Of shared GPUs, of a cluster, too.
        ({"attribution": "Shared"}, "simulated", "shared"),
        ({"attribution": "Shared"}, None, "shared"),
    ],
)
def test_energies_of_idle_simulated_gpus_are_recognised(
    history: Make, record: Make, changes: dict[str, Any], origin: str | None, expected: str | None
) -> None:
    (row,) = rows_of(history(record(**(IDLE | changes)), energy_origin=origin))
    assert row.energy_origin == expected


def test_files_summary_and_plots_say_so(history: Make, record: Make, tmp_path: Path) -> None:
    pictures = {}
    for origin in (EnergyOrigin.SIMULATED, EnergyOrigin.SIMULATED_LOAD):
        shown = history(record(**IDLE), record(1, **IDLE), energy_origin=origin)
        rows = rows_of(shown)
        is_idle = origin is EnergyOrigin.SIMULATED
        stream = io.StringIO()
        write_csv(stream, rows)
        written = [row["energy_origin"] for row in csv.DictReader(io.StringIO(stream.getvalue()))]
        assert written == ["simulated-idle" if is_idle else "simulated-load"] * 2
        assert json.loads(json.dumps(json_object(rows[0])))["energy_origin"] == written[0]
        assert (IDLE_NOTE in summary(shown)) is is_idle
        assert ("--simulated-load cpu" in summary(shown)) is is_idle
        (tmp_path / origin).mkdir()
        pictures[origin] = [path.read_bytes() for path in write_plots(tmp_path / origin, shown)]
    # Only the footer differs.
    for idle, loaded in zip(*pictures.values(), strict=True):
        assert idle != loaded


def test_a_mixed_history_says_how_many_attempts_it_is_about() -> None:
    assert energy_note(["simulated", "simulated-idle", "simulated"]) == f"{IDLE_NOTE} (1 of 3 attempts)"
    assert energy_note(["gpu", None]) == ""
