"""The three clocks, and the reproducibility of runs with the virtual clock."""

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nvml_simulator
from nvml_simulator import Description, Machine
from support.agents.simulated_programs import MakeMachine, StartNvml
from wattloop.errors import UsageError

Step = tuple[str, tuple[int, ...], float, float]

steps = st.lists(
    st.tuples(
        st.sampled_from(["work", "idle", "limit"]),
        st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True).map(tuple),
        st.floats(0.0, 50.0),
        st.floats(0.0, 1.0),
    ),
    max_size=12,
)


def run_steps(sequence: Sequence[Step], *, seed: int = 0) -> Description:
    with tempfile.TemporaryDirectory() as folder:
        path = nvml_simulator.create(Path(folder) / "gpus", model="A100", count=4, clock="virtual", seed=seed)
        with Machine(path) as machine:
            for kind, gpus, quantity, share in sequence:
                if kind == "work":
                    machine.occupy(gpus, quantity, share)
                elif kind == "idle":
                    machine.idle(gpus, quantity)
                else:
                    machine.set_power_limit_as_another_actor(gpus[0], 100 + 300 * share)
            return machine.describe()


@settings(deadline=None, max_examples=40)
@given(sequence=steps, seed=st.integers(0, 2**64 - 1))
def test_the_same_steps_give_the_same_bits(sequence: list[Step], seed: int) -> None:
    assert run_steps(sequence, seed=seed) == run_steps(sequence, seed=seed)


def test_a_known_run_gives_the_same_bits_on_every_machine() -> None:
    gpus = run_steps([("limit", (1,), 0.0, 0.37), ("work", (0, 1, 2), 1234.5, 0.93), ("idle", (0,), 1.7, 0.0)]).gpus
    assert [(gpu.energy_microjoules, gpu.time_seconds, gpu.counter_millijoules) for gpu in gpus] == [
        (1982140152, 8.61438704, 2428072385),
        (1452636658, 6.91438704, 1128421270),
        (1888640152, 6.91438704, 695044498),
        (0, 0.0, 3233833366),
    ]


@settings(deadline=None, max_examples=40)
@given(sequence=steps, order=st.randoms(use_true_random=False))
def test_a_gpu_does_not_depend_on_work_on_other_gpus(sequence: list[Step], order: object) -> None:
    apart = [(kind, (gpus[0],), quantity, share) for kind, gpus, quantity, share in sequence]
    by_gpu = [[move for move in apart if move[1] == (gpu,)] for gpu in range(4)]
    interleaved = list(itertools.chain.from_iterable(itertools.zip_longest(*by_gpu)))
    assert run_steps([move for move in interleaved if move]).gpus == run_steps(list(itertools.chain(*by_gpu))).gpus


def test_virtual_time_advances_only_with_work(make_machine: MakeMachine) -> None:
    machine = make_machine(model="A100", count=2)
    assert machine.clock_seconds() == 0
    seconds = machine.occupy(0, 31.2, 0.1)
    assert machine.clock_seconds(0) == machine.clock_seconds() == seconds == pytest.approx(0.1)
    assert machine.clock_seconds(1) == 0


def test_gpus_that_work_together_end_together_and_the_faster_one_waits(make_machine: MakeMachine) -> None:
    machine = make_machine(model="A100", count=3)
    machine.set_power_limit_as_another_actor(1, 150)
    machine.occupy(2, 312.0, 0.1)
    begin = machine.clock_seconds(2)
    seconds = machine.occupy([0, 1, 2], 312.0, 1.0)
    fast, slow, _ = machine.describe().gpus
    assert fast.time_seconds == slow.time_seconds == pytest.approx(begin + seconds)
    alone = make_machine(model="A100", count=1)
    working = alone.occupy(0, 312.0, 1.0)
    worked = alone.describe().gpus[0].energy_microjoules
    waited = (seconds - working) * nvml_simulator.model_named("A100").waiting_watts * 1e6
    idled = begin * nvml_simulator.model_named("A100").idle_watts * 1e6
    assert fast.energy_microjoules == pytest.approx(idled + worked + waited, rel=1e-6)


def test_the_wall_clock_is_the_system_clock(make_machine: MakeMachine) -> None:
    machine = make_machine(clock="wall", count=1)
    before = machine.clock_seconds()
    seconds = machine.occupy(0, 3.12, 0.1)
    assert before + seconds <= machine.clock_seconds()
    assert machine.describe().gpus[0].busy_seconds == pytest.approx(0.01)


def test_the_scaled_clock_is_faster_by_its_factor(make_machine: MakeMachine) -> None:
    fast = make_machine(clock="scaled", scale=1000.0)
    slow = make_machine(clock="wall")
    fast.occupy(0, 312.0, 0.1)
    assert fast.describe().gpus[0].busy_seconds == pytest.approx(1.0)
    elapsed = slow.clock_seconds()
    assert fast.clock_seconds() > 1000 * elapsed


def test_idle_is_rejected_if_the_clock_is_not_virtual(make_machine: MakeMachine) -> None:
    with pytest.raises(UsageError, match="not virtual"):
        make_machine(clock="wall").idle(0, 1.0)


@pytest.mark.parametrize("clock", ["wall", "virtual"])
@pytest.mark.parametrize(
    ("work", "intensity"), [(-1.0, 0.5), (float("nan"), 0.5), (1.0, 1.01), (1.0, -0.1), (2e9, 0.5)]
)
def test_work_out_of_range_is_rejected(clock: str, work: float, intensity: float, make_machine: MakeMachine) -> None:
    with pytest.raises(UsageError, match="an intensity from 0 to 1"):
        make_machine(clock=clock).occupy(0, work, intensity)


def test_a_duplicate_or_unknown_gpu_is_rejected(make_machine: MakeMachine) -> None:
    machine = make_machine(count=2)
    with pytest.raises(UsageError, match="each GPU once"):
        machine.occupy([0, 0], 1.0, 0.5)
    for unknown in (2, -1, "GPU-unknown"):
        with pytest.raises(UsageError, match="index of 0 to 1"):
            machine.occupy(unknown, 1.0, 0.5)


def test_a_gpu_that_waits_for_a_message_draws_its_waiting_power_until_then(make_machine: MakeMachine) -> None:
    machine = make_machine(model="A100", count=2)
    machine.wait(0, 1.5)
    waiting, other = machine.describe().gpus
    assert waiting.time_seconds == 1.5
    watts = nvml_simulator.model_named("A100").waiting_watts
    assert waiting.energy_microjoules == pytest.approx(1.5e6 * watts, rel=1e-6)
    assert other.time_seconds == 0
    machine.wait(0, 1.0)
    assert machine.describe().gpus[0] == waiting
    # Nothing of the wait remains on the GPU.
    machine.occupy(0, 31.2, 0.1)
    machine.idle(0, 1.0)
    idle = machine.describe().gpus[0]
    machine.idle(0, 1.0)
    joules = (machine.describe().gpus[0].energy_microjoules - idle.energy_microjoules) / 1e6
    assert joules == pytest.approx(nvml_simulator.model_named("A100").idle_watts, rel=1e-6)


def test_a_wait_needs_the_virtual_clock_and_a_time_in_range(make_machine: MakeMachine) -> None:
    with pytest.raises(UsageError, match="not virtual"):
        make_machine(clock="wall").wait(0, 1.0)
    with pytest.raises(UsageError, match="expected 0 to 1000000000"):
        make_machine().wait(0, -1.0)


def test_each_change_of_a_clock_s_lock_is_traced_with_its_time(
    make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    machine = make_machine(model="A100", count=2)
    nvml = start_nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(1)
    nvml.nvmlDeviceSetGpuLockedClocks(gpu, 900, 905)
    machine.idle(1, 2.0)
    nvml.nvmlDeviceResetGpuLockedClocks(gpu)
    nvml.nvmlDeviceSetGpuLockedClocks(gpu, 1410, 1410)
    machine.restart_driver()
    expected = [(0.0, (900, 900)), (2.0, None), (2.0, (1410, 1410)), (2.0, None)]
    assert [(each.time_seconds, each.megahertz) for each in machine.clock_settings(1)] == expected
    assert [each.megahertz for each in machine.clock_settings(0)] == [None]


def test_the_last_changes_of_a_clock_s_lock_are_kept(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    machine = make_machine(model="A100", count=1)
    nvml = start_nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    clocks = [210 + 15 * (number % 80) for number in range(4100)]
    for clock in clocks:
        nvml.nvmlDeviceSetGpuLockedClocks(gpu, clock, clock)
    assert [each.megahertz for each in machine.clock_settings(0)] == [(clock, clock) for clock in clocks[4:]]


def test_each_work_is_recorded_with_its_clock_its_times_and_its_energy(
    make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    machine = make_machine(model="A100", count=2)
    nvml = start_nvml()
    machine.occupy(0, 312.0, 0.5)
    nvml.nvmlDeviceSetGpuLockedClocks(nvml.nvmlDeviceGetHandleByIndex(0), 900, 900)
    machine.wait(0, 4.0)
    machine.occupy([0, 1], 312.0, 0.5)
    first, second = machine.work_records(0)
    assert (first.begin_seconds, first.begin_microjoules, first.graphics_clock_megahertz) == (0, 0, 1410)
    assert (second.begin_seconds, second.graphics_clock_megahertz) == (4.0, 900)
    state = machine.describe_gpu(0)
    assert (second.end_seconds, second.end_microjoules) == (state.time_seconds, state.energy_microjoules)
    for record in (first, second):
        watts, _ = nvml_simulator.busy_power_and_throughput(
            nvml_simulator.model_named("A100"), record.graphics_clock_megahertz, 0.5
        )
        joules = (record.end_microjoules - record.begin_microjoules) / 1e6
        assert joules == pytest.approx(watts * (record.end_seconds - record.begin_seconds), rel=1e-6)
    (other,) = machine.work_records(1)
    assert (other.begin_seconds, other.end_seconds) == (4.0, second.end_seconds)
