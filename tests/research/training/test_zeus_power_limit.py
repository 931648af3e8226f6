"""The power limit optimizer with Zeus' names, on simulated GPUs and a real agent, beside the real Zeus' selectors."""

import csv
import inspect
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.agents.agent_fixture import until
from support.agents.simulated_node import SimulatedNode, simulated_node
from wattloop.compat import zeus as compat
from wattloop.errors import InputError
from wattloop.gpus.agent import SOCKET_VARIABLE
from wattloop_research.training.zeus_power_limit import (
    OptimizerArgumentError,
    PowerLimitNotHeldError,
    zeus_measurements,
)

PROFILE = {
    "measurements": [{"power_limit": watts, "energy": 900.0 + watts, "time": 40 / watts} for watts in (400, 100)]
}
# A training whose steps take a tenth of a second of a GPU without a limit.
TRAINING = """
import sys
import nvml_simulator
from wattloop.compat.zeus import {names}

with nvml_simulator.Machine(sys.argv[1]) as gpus:
    monitor = ZeusMonitor({monitor})
    plo = GlobalPowerLimitOptimizer(monitor, {arguments})
    for epoch in range({epochs}):
        for step in range({steps}):
            plo.on_step_begin()
            gpus.occupy(0, work=15.6, intensity=0.9)
            plo.on_step_end()
        plo.on_epoch_end()
    print(gpus.describe().gpus[0].power_limit_watts, [each.power_limit for each in plo.measurements])
"""


@pytest.fixture(scope="module")
def zeus() -> Any:
    import zeus.optimizer.power_limit  # noqa: PLC0415 - it imports scikit-learn and pandas

    return zeus.optimizer.power_limit


@pytest.fixture(scope="module")
def node() -> Iterator[SimulatedNode]:
    with simulated_node(1, "wall") as running:
        yield running


def train(node: SimulatedNode, folder: Path, arguments: str, *, epochs: int, steps: int) -> str:
    script = TRAINING.format(
        names="GlobalPowerLimitOptimizer, MaxSlowdownConstraint, Time, ZeusMonitor",
        monitor="gpu_indices=[0], log_file='windows.csv'",
        arguments=arguments,
        epochs=epochs,
        steps=steps,
    )
    environment = {**os.environ, SOCKET_VARIABLE: str(node.socket)}
    done = subprocess.run(
        [sys.executable, "-c", script, str(node.state)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("name", ["GlobalPowerLimitOptimizer", "ZeusCost", "MaxSlowdownConstraint"])
def test_the_arguments_are_those_of_zeus(zeus: Any, name: str) -> None:
    ours, theirs = (inspect.signature(getattr(each, name)).parameters for each in (compat, zeus))
    assert [(each.name, each.default) for each in ours.values()] == [
        (each.name, each.default) for each in theirs.values()
    ]


def selectors(module: Any) -> list[Any]:
    costs = [module.ZeusCost(eta, world_size=size) for eta in (0.0, 0.5, 1.0) for size in (1, 4)]
    return [
        module.Energy(),
        module.Time(),
        *costs,
        module.MaxSlowdownConstraint(1.0),
        module.MaxSlowdownConstraint(1.2),
    ]


@settings(max_examples=50, deadline=None)
@given(
    measured=st.dictionaries(
        st.integers(1, 40).map(lambda number: 25 * number),
        st.tuples(st.floats(1, 1e6), st.floats(0.01, 1e3)),
        min_size=1,
        max_size=9,
    )
)
def test_the_selectors_choose_what_those_of_zeus_choose(zeus: Any, measured: dict[int, tuple[float, float]]) -> None:
    # Zeus takes the first of equal ones, ours that of the lowest limit.
    values = [(watts, *measured[watts]) for watts in sorted(measured)]
    chosen = [
        [
            each.select([module.PowerLimitMeasurement(power_limit=w, energy=e, time=t) for w, e, t in values])
            for each in selectors(module)
        ]
        for module in (compat, zeus)
    ]
    assert chosen[0] == chosen[1]


def test_limits_are_measured_in_short_epochs_and_the_best_is_held_until_the_process_ends(
    node: SimulatedNode, tmp_path: Path, zeus: Any
) -> None:
    arguments = "Time(), warmup_steps=1, profile_steps=3, pl_step=150, profile_path='profile.json'"
    printed = train(node, tmp_path, arguments, epochs=14, steps=2)
    held, measured = printed.split(" ", 1)
    assert measured.strip() == "[400, 250, 100]"
    assert float(held) == 400
    assert node.gpus.describe().gpus[0].power_limit_watts == 400
    written = (tmp_path / "profile.json").read_text()
    theirs = zeus._PowerLimitMeasurementList.parse_raw(written).measurements
    assert [each.power_limit for each in theirs] == [400, 250, 100]
    assert theirs[0].time < theirs[1].time < theirs[2].time
    with (tmp_path / "windows.csv").open() as file:
        windows = defaultdict(list)
        for row in csv.DictReader(file):
            windows[row["window_name"]].append(float(row["gpu0_energy"]))
    assert set(windows) == {f"__GlobalPowerLimitOptimizer_{watts}" for watts in (400, 250, 100)}
    assert sum(windows["__GlobalPowerLimitOptimizer_250"]) == pytest.approx(theirs[1].energy)


def test_a_profile_of_zeus_is_read_and_nothing_is_measured(node: SimulatedNode, tmp_path: Path, zeus: Any) -> None:
    measurements = [zeus.PowerLimitMeasurement(**each) for each in PROFILE["measurements"]]
    text = zeus._PowerLimitMeasurementList(measurements=measurements).json(indent=4)
    (tmp_path / "profile.json").write_text(text)
    printed = train(node, tmp_path, "MaxSlowdownConstraint(9), profile_path='profile.json'", epochs=1, steps=1)
    assert printed == "100.0 [400, 100]\n"
    until(lambda: node.gpus.describe().gpus[0].power_limit_watts == 400, "the GPU is restored")
    assert (tmp_path / "profile.json").read_text() == text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "found no list of measurements"),
        ({"measurements": []}, "found no list of measurements"),
        ({"measurements": [{"power_limit": 100, "energy": -1, "time": 1}]}, "measurement 0 is"),
        ({"measurements": [{"power_limit": 100, "energy": 1}]}, "measurement 0 is"),
    ],
)
def test_an_invalid_profile_is_named(content: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        zeus_measurements(json.dumps(content), "profile.json")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wait_steps": -1}, "wait_steps is -1; it must be a whole number of at least 0"),
        ({"warmup_steps": -1}, "warmup_steps is -1"),
        ({"profile_steps": 0}, "profile_steps is 0; it must be a whole number of at least 1"),
        ({"pl_step": 0}, "pl_step is 0"),
    ],
)
def test_an_invalid_argument_is_a_value_error_as_in_zeus(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(OptimizerArgumentError, match=message) as refused:
        compat.GlobalPowerLimitOptimizer(compat.ZeusMonitor.__new__(compat.ZeusMonitor), **arguments)  # type: ignore[arg-type]
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize(("make", "value"), [(compat.ZeusCost, 1.5), (compat.MaxSlowdownConstraint, 0.9)])
def test_a_selector_out_of_range_is_a_value_error_as_in_zeus(make: Any, value: float) -> None:
    with pytest.raises(OptimizerArgumentError):
        make(value)


def test_without_an_agent_the_error_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SOCKET_VARIABLE, raising=False)
    monitor = compat.ZeusMonitor.__new__(compat.ZeusMonitor)
    monitor.gpu_indices = [0]
    with pytest.raises(PowerLimitNotHeldError, match="run `wattloop agent --socket PATH`") as refused:
        compat.GlobalPowerLimitOptimizer(monitor)
    assert isinstance(refused.value, RuntimeError)
