"""The account between rare counter readings, estimated from frequent power samples."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agents.simulated_day import GPU, TrueGpu
from wattloop_agent.monitor.energy.energy_snapshot import energy_from
from wattloop_agent.monitor.energy.gpu_account import GpuAccount

SAMPLES_PER_COUNTER = 100
INTERVAL_SECONDS = 0.1


class AveragingGpu(TrueGpu):
    """A GPU that reports the mean power of the last second, as GPUs do from Ampere on."""

    def power(self, moment: float) -> float:
        return self.energy(moment) - self.energy(moment - 1.0)


def account_of(gpu: TrueGpu, samples: int, per_counter: int = SAMPLES_PER_COUNTER) -> GpuAccount:
    account = GpuAccount(GPU, "H200")
    for number in range(samples):
        account.add(gpu.sample(10 + number * INTERVAL_SECONDS, counts=number % per_counter == 0))
    return account


def moment_of(sample_number: int) -> float:
    return 10 + sample_number * INTERVAL_SECONDS


BURSTS = [(0.0, 90.0), *((12 + 0.67 * each, (700.0, 100.0)[each % 2]) for each in range(40))]


@pytest.mark.parametrize("kind", [TrueGpu, AveragingGpu])
@pytest.mark.parametrize("sample_number", [1, 7, 30, 99, 100, 101, 150, 199])
def test_the_account_is_correct_within_its_uncertainty_between_counter_readings(
    kind: type[TrueGpu], sample_number: int
) -> None:
    gpu = kind([(0.0, 100.0), (12.3, 700.0), (17.1, 90.0), (25.0, 400.0)])
    reported = account_of(gpu, sample_number + 1).to_wire()
    actual = (gpu.energy(moment_of(sample_number)) - gpu.energy(10.0)) * 1000
    assert abs(reported.energy_millijoules - actual) <= reported.uncertainty_millijoules + 100 * 100 + 1


@pytest.mark.parametrize("kind", [TrueGpu, AveragingGpu])
def test_snapshots_of_a_bursty_load_are_correct_within_their_uncertainty_after_the_next_reading(
    kind: type[TrueGpu],
) -> None:
    gpu = kind(BURSTS)
    account = account_of(gpu, 251)
    for sample_number in range(0, 250, 3):
        moment = moment_of(sample_number) + 0.04
        energy, uncertainty = energy_from(account.snapshot_at(10.0), account.snapshot_at(moment))
        actual = (gpu.energy(moment) - gpu.energy(10.0)) * 1000
        assert abs(energy - actual) <= uncertainty + 1, moment
        assert uncertainty < 2_000_000


def test_the_energy_of_a_constant_load_is_known_within_one_counter_update() -> None:
    gpu = TrueGpu([(0.0, 400.0)])
    reported = account_of(gpu, 80).to_wire()
    assert abs(reported.energy_millijoules - 400_000 * 7.9) <= 400 * 100 + 1
    assert reported.uncertainty_millijoules <= 400 * 100 + 1


def test_power_samples_place_a_load_between_two_counter_readings() -> None:
    gpu = TrueGpu([(0.0, 100.0), (15.0, 700.0)])
    sampled, not_sampled = account_of(gpu, 101), GpuAccount(GPU, "H200")
    for moment in (10.0, 20.0):
        not_sampled.add(gpu.sample(moment))
    until_load = sampled.snapshot_at(15.0).energy_millijoules
    assert until_load == pytest.approx(500_000, abs=60_000)
    assert not_sampled.snapshot_at(15.0).energy_millijoules == pytest.approx(2_000_000, rel=0.02)


def test_after_a_restart_the_counter_replaces_the_estimate() -> None:
    gpu = AveragingGpu([(0.0, 100.0), (13.0, 700.0), (14.0, 100.0)])
    before = account_of(gpu, 60)
    reported = before.to_wire()
    after = GpuAccount.from_record(json.loads(json.dumps(before.to_record())), same_boot=True)
    assert after.to_wire().energy_millijoules >= reported.energy_millijoules
    after.add(gpu.sample(20.0))
    assert after.to_wire().energy_millijoules == max(gpu.counter(20.0) - gpu.counter(10.0), reported.energy_millijoules)
    assert after.to_wire().time_seconds == pytest.approx(before.to_wire().time_seconds + 20.0 - moment_of(59))


def test_power_samples_bridge_a_counter_reset_between_two_readings() -> None:
    gpu = TrueGpu([(0.0, 100.0), (13.0, 600.0), (17.0, 100.0)], resets=[18.0])
    account = account_of(gpu, 101)
    reported = account.to_wire()
    actual = (gpu.energy(20.0) - gpu.energy(10.0)) * 1000
    assert account.resets == 1
    assert reported.energy_millijoules == pytest.approx(actual, rel=0.02)
    assert abs(reported.energy_millijoules - actual) <= reported.uncertainty_millijoules


POWERS = st.lists(st.tuples(st.floats(0.2, 5.0), st.sampled_from([0.0, 60.0, 350.0, 700.0])), min_size=1, max_size=8)


@given(POWERS, st.integers(2, 60), st.sampled_from([TrueGpu, AveragingGpu]))
def test_reported_energy_never_falls_and_converges_to_the_counter(
    powers: list[tuple[float, float]], per_counter: int, kind: type[TrueGpu]
) -> None:
    since = [0.0, *itertools.accumulate(10 + wait for wait, _ in powers)]
    gpu = kind([(begin, watts) for begin, (_, watts) in zip(since, powers, strict=False)])
    account = GpuAccount(GPU, "H200")
    energies = []
    for sample_number in range(per_counter * 3 + 1):
        account.add(gpu.sample(moment_of(sample_number), counts=sample_number % per_counter == 0))
        energies.append(account.to_wire().energy_millijoules)
    assert energies == sorted(energies)
    counted = gpu.counter(moment_of(per_counter * 3)) - gpu.counter(10.0)
    reported = account.to_wire()
    assert 0 <= reported.energy_millijoules - counted <= reported.uncertainty_millijoules
    snapshots = [account.snapshot_at(9.5 + 0.07 * number).energy_millijoules for number in range(per_counter * 5)]
    assert all(one <= other + 1e-6 for one, other in itertools.pairwise(snapshots))
