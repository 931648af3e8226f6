"""The temperature of the GPU, and with it the order of the limits, does not decide which limit is chosen."""

import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import nvml_simulator
from nvml_simulator import Machine, ThermalModel
from support.test_sets.parameters import exhaustive_after
from wattloop.power.selectors import Energy, MaxSlowdown, MeasuredLimit, Selector
from wattloop.power.sequential_design import SequentialDesign
from wattloop.power.windows import PowerWindow, Totals, WindowRecorder

LIMITS = tuple(400.0 - 37.5 * place for place in range(9))
STEPS_UNTIL_STEADY = 2500


class HotGpu:
    """A simulated A100 that leaks 1 W for each kelvin, and has trained at its highest limit for minutes."""

    def __init__(self, path: Path, seed: int) -> None:
        nvml_simulator.create(path, model="A100", count=1, clock="virtual")
        self.machine = Machine(path)
        self.machine.set_thermal_model(ThermalModel(leakage_watts_per_kelvin=1.0))
        self._noise = random.Random(seed)
        self.work(STEPS_UNTIL_STEADY)

    def work(self, steps: float) -> Totals:
        self.machine.occupy(0, 62.4 * steps, 0.9)
        gpu = self.machine.describe().gpus[0]
        return Totals(gpu.counter_millijoules / 1e3, gpu.time_seconds)

    def settled(self, limit: float) -> MeasuredLimit:
        self.machine.set_power_limit_as_another_actor(0, limit)
        begin, end = self.work(STEPS_UNTIL_STEADY), self.work(500)
        return MeasuredLimit(
            limit, (end.energy_joules - begin.energy_joules) / 500, (end.time_seconds - begin.time_seconds) / 500
        )

    def window(self, limit: float) -> PowerWindow:
        self.machine.set_power_limit_as_another_actor(0, limit)
        recorder = WindowRecorder(limit)
        while True:
            totals = self.work(math.exp(self._noise.gauss(0.0, 0.03)))
            if recorder.step_done(1) and (window := recorder.add_totals(totals)) is not None:
                return window


def from_the_maximum_down(gpu: HotGpu) -> Sequence[MeasuredLimit]:
    windows = [gpu.window(limit) for limit in LIMITS]
    return [
        MeasuredLimit(each.power_limit_watts, each.energy_joules / each.samples, each.time_seconds / each.samples)
        for each in windows
    ]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("selector", "seeds"),
    exhaustive_after([(Energy(), 1), (MaxSlowdown(1.1), 3), (Energy(), 3)]),
    ids=["Energy, once", "MaxSlowdown", "Energy"],
)
def test_on_a_hot_gpu_one_pass_always_chooses_too_high_a_limit_and_the_design_mostly_the_right_one(
    selector: Selector, seeds: int, tmp_path: Path
) -> None:
    true = [HotGpu(tmp_path / f"settled-{limit}", seed=0).settled(limit) for limit in LIMITS]
    right = selector.select(true).power_limit_watts
    by_design = []
    for seed in range(seeds):
        by_one_pass = selector.select(from_the_maximum_down(HotGpu(tmp_path / f"pass-{seed}", seed)))
        assert by_one_pass.power_limit_watts > right
        design = SequentialDesign(LIMITS, 1, selector)
        gpu = HotGpu(tmp_path / f"design-{seed}", seed)
        while design.reason is None:
            design.add(gpu.window(design.limit_watts))
        by_design.append(design.limit_watts)
    if isinstance(selector, MaxSlowdown):
        # What heat leaves uncertain must not break the bound, so the next higher limit may be chosen.
        assert right in by_design
        assert set(by_design) <= {right, LIMITS[LIMITS.index(right) - 1]}
    else:
        assert by_design.count(right) > seeds / 2
