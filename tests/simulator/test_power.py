"""The power curve: the effect of limits, clocks and load on power, speed and energy."""

import csv
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nvml_simulator
from nvml_simulator import Machine, Model, SimulatedGpu, busy_power_and_throughput, model_named, models
from support.agents.simulated_programs import MakeMachine

PROFILES = Path(__file__).parents[1] / "data" / "perseus" / "stage_profile"
MODEL_NAMES = [model.key for model in models()]

limits = st.floats(0.0, 1.0)
intensities = st.floats(0.0, 1.0)
works = st.floats(0.001, 100_000.0)


def run_once(
    model: str, *, limit: float = 1.0, clock: int | None = None, work: float, intensity: float
) -> tuple[float, SimulatedGpu]:
    """Return the seconds of one unit of work on a new GPU, and the GPU; `limit` is a share of the range."""
    with tempfile.TemporaryDirectory() as folder:
        path = nvml_simulator.create(Path(folder) / "gpus", model=model, count=1, clock="virtual")
        with Machine(path) as machine:
            minimum, maximum = model_named(model).power_limit_range_watts
            machine.set_power_limit_as_another_actor(0, minimum + limit * (maximum - minimum))
            seconds = machine.occupy(0, work, intensity)
            return seconds, machine.describe().gpus[0]


@settings(deadline=None)
@given(model=st.sampled_from(MODEL_NAMES), low=limits, high=limits, intensity=intensities, work=works)
def test_a_lower_limit_never_increases_power_or_speed(
    model: str, low: float, high: float, intensity: float, work: float
) -> None:
    low, high = sorted((low, high))
    slow_seconds, slow = run_once(model, limit=low, work=work, intensity=intensity)
    fast_seconds, fast = run_once(model, limit=high, work=work, intensity=intensity)
    assert slow_seconds >= fast_seconds
    assert slow.energy_microjoules / slow_seconds <= fast.energy_microjoules / fast_seconds + 1e-3 / fast_seconds


@settings(deadline=None)
@given(model=st.sampled_from(MODEL_NAMES), limit=limits, intensity=intensities)
def test_a_gpu_runs_at_the_highest_clock_whose_power_is_within_the_limit(
    model: str, limit: float, intensity: float
) -> None:
    seconds, gpu = run_once(model, limit=limit, work=1000.0, intensity=intensity)
    table = model_named(model).graphics_clocks_megahertz
    points = [busy_power_and_throughput(model_named(model), clock, intensity) for clock in table]
    within = [point for point in points if point[0] <= gpu.power_limit_watts] or [points[-1]]
    watts, throughput = within[0]
    assert seconds == pytest.approx(1000.0 / throughput, rel=1e-6)
    assert gpu.energy_microjoules / 1e6 == pytest.approx(watts * seconds, rel=1e-6)


@settings(deadline=None)
@given(model=st.sampled_from(models()), intensity=intensities)
def test_power_and_speed_rise_with_the_clock(model: Model, intensity: float) -> None:
    points = [busy_power_and_throughput(model, clock, intensity) for clock in reversed(model.graphics_clocks_megahertz)]
    assert points == sorted(points)
    assert points[-1][1] == model.teraflops_per_second


@settings(deadline=None)
@given(model=st.sampled_from(models()), one=intensities, other=intensities)
def test_power_rises_with_intensity_and_speed_does_not_depend_on_it(model: Model, one: float, other: float) -> None:
    low, high = sorted((one, other))
    for clock in model.graphics_clocks_megahertz[::20]:
        low_watts, low_speed = busy_power_and_throughput(model, clock, low)
        high_watts, high_speed = busy_power_and_throughput(model, clock, high)
        assert model.waiting_watts <= low_watts <= high_watts
        assert low_speed == high_speed


@pytest.mark.parametrize("model", models(), ids=lambda model: model.key)
def test_full_load_reaches_the_power_limit_below_the_highest_clock(model: Model) -> None:
    watts, _ = busy_power_and_throughput(model, model.graphics_clocks_megahertz[0], 1.0)
    assert watts > model.power_limit_range_watts[1]


@pytest.mark.parametrize("model", models(), ids=lambda model: model.key)
def test_the_energy_of_work_is_minimal_between_the_lowest_and_the_highest_clock(model: Model) -> None:
    points = [busy_power_and_throughput(model, clock, 1.0) for clock in model.graphics_clocks_megahertz]
    joules_per_teraflop = [watts / throughput for watts, throughput in points]
    assert 0 < joules_per_teraflop.index(min(joules_per_teraflop)) < len(points) - 1


@settings(deadline=None)
@given(
    model=st.sampled_from(["A40", "A100", "H200"]),
    clocks=st.lists(st.integers(100, 2500), min_size=2, max_size=2).map(sorted),
    work=works,
)
def test_a_locked_clock_is_applied_and_a_lower_one_is_never_faster(model: str, clocks: list[int], work: float) -> None:
    nvml_simulator.load()
    import pynvml  # noqa: PLC0415

    seconds = []
    for clock in clocks:
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            path = nvml_simulator.create(Path(folder) / "gpus", model=model, clock="virtual", permission="anyone")
            patch.setenv(nvml_simulator.STATE_VARIABLE, str(path))
            pynvml.nvmlInit()
            pynvml.nvmlDeviceSetGpuLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(0), 0, clock)
            pynvml.nvmlShutdown()
            with Machine(path) as machine:
                seconds.append(machine.occupy(0, work, 0.2))
                locked = machine.describe().gpus[0].locked_graphics_clocks_megahertz
        table = model_named(model).graphics_clocks_megahertz
        assert locked == (table[-1], next((step for step in table if step <= clock), table[-1]))
    assert seconds[0] >= seconds[1]


def test_a_lower_memory_clock_slows_the_share_that_is_bound_by_memory(
    make_machine: MakeMachine, start_nvml: Callable[[], object]
) -> None:
    machine = make_machine(model="H200", count=1)
    fast = machine.occupy(0, 100.0, 0.1)
    import pynvml  # noqa: PLC0415

    start_nvml()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceSetMemoryLockedClocks(handle, 2201, 2201)
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM) == 2201
    slow = machine.occupy(0, 100.0, 0.1)
    assert slow / fast == pytest.approx(0.7 + 0.3 * 3201 / 2201, rel=1e-3)


@pytest.mark.parametrize(
    ("profile", "model", "tolerance"),
    [("gpt3-175b+a100_sxm_bf16.csv", "A100", 0.10), ("bloom+a40_bf16.csv", "A40", 0.12)],
)
def test_the_curve_matches_the_published_profile(profile: str, model: str, tolerance: float) -> None:
    with (PROFILES / profile).open() as file:
        rows = [row for row in csv.DictReader(file) if row["instruction"] == "backward" and row["stage"] == "1"]
    assert len(rows) > 30
    gpu = model_named(model)
    limit = gpu.power_limit_range_watts[1] if model == "A40" else float("inf")
    for row in rows:
        measured = float(row["energy"]) / float(row["time"])
        watts, _ = busy_power_and_throughput(gpu, int(row["frequency"]), 1.0)
        assert min(watts, limit) == pytest.approx(measured, rel=tolerance), row
