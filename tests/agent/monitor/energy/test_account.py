"""Cumulative energy of a GPU, compared with the exact energy of a simulated one."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agents.simulated_day import GPU, TrueGpu
from wattloop_agent.monitor.energy.energy_snapshot import energy_from
from wattloop_agent.monitor.energy.gpu_account import GpuAccount


def account_of(gpu: TrueGpu, moments: list[float], **sampled: bool) -> GpuAccount:
    account = GpuAccount(GPU, "A100")
    for moment in moments:
        account.add(gpu.sample(moment, **sampled))
    return account


def times(seconds: float, interval: float, begin: float = 0.0) -> list[float]:
    return [begin + number * interval for number in range(round(seconds / interval) + 1)]


def test_a_constant_hundred_watts_for_ten_seconds_is_a_thousand_joules() -> None:
    gpu = account_of(TrueGpu(), times(10, 0.5), counts=False).to_wire()
    assert (gpu.energy_millijoules, gpu.uncertainty_millijoules, gpu.source) == (1_000_000, 0, "integrated")


@pytest.mark.parametrize("interval", [0.02, 0.1, 0.37, 1.0, 5.0])
def test_the_counters_difference_is_the_energy_at_any_sampling_interval(interval: float) -> None:
    gpu = TrueGpu([(0.0, 100.0), (7.3, 650.0), (12.05, 80.0)])
    reported = account_of(gpu, times(20, interval, begin=3.0)).to_wire()
    actual = (gpu.energy(3.0 + round(20 / interval) * interval) - gpu.energy(3.0)) * 1000
    assert abs(reported.energy_millijoules - actual) <= reported.uncertainty_millijoules + 100.0 * 100
    assert reported.source == "counter"
    assert reported.uncertainty_millijoules < 20_000


@pytest.mark.parametrize("moment", [5.0, 5.03, 7.2, 7.31, 7.5, 10.11])
@pytest.mark.parametrize("interval", [0.05, 0.1, 1.0])
def test_a_snapshot_between_updates_is_interpolated_within_its_uncertainty(moment: float, interval: float) -> None:
    gpu = TrueGpu([(0.0, 100.0), (7.3, 650.0)])
    account = account_of(gpu, times(15, interval))
    energy, uncertainty = energy_from(account.snapshot_at(2.0), account.snapshot_at(moment))
    actual = (gpu.energy(moment) - gpu.energy(2.0)) * 1000
    assert abs(energy - actual) <= uncertainty + 1
    assert uncertainty <= 650 * 1000 * max(interval, gpu.step_seconds)


def test_a_counter_reset_adds_uncertainty_and_loses_no_energy() -> None:
    gpu = TrueGpu([(0.0, 300.0)], resets=[10.3])
    account = account_of(gpu, times(20, 1.0))
    reported = account.to_wire()
    assert account.resets == 1
    assert abs(reported.energy_millijoules - gpu.energy(20.0) * 1000) <= reported.uncertainty_millijoules
    assert reported.energy_millijoules == pytest.approx(6_000_000, rel=0.02)
    assert 0 < reported.uncertainty_millijoules < 500_000


def test_a_reset_without_power_readings_counts_the_new_counter_value() -> None:
    gpu = TrueGpu([(0.0, 300.0)], resets=[10.3])
    account = account_of(gpu, times(20, 1.0), has_power=False)
    assert account.to_wire().energy_millijoules == pytest.approx((10 + 9.7) * 300_000, rel=0.01)


@pytest.mark.parametrize("invalid_counter", [2**64 - 1, 2**63, 10**13, 0])
def test_a_counter_with_an_impossible_value_is_ignored(invalid_counter: int) -> None:
    gpu, offset = TrueGpu([(0.0, 300.0)]), 10**10
    account = GpuAccount(GPU, "A100")
    for moment in times(20, 1.0):
        counter = invalid_counter if moment == 11.0 else offset + gpu.counter(moment)
        account.add(gpu.sample(moment)._replace(energy_millijoules=counter))
    reported = account.to_wire()
    assert abs(reported.energy_millijoules - 6_000_000) <= reported.uncertainty_millijoules
    assert reported.uncertainty_millijoules < 1_000_000
    assert account.resets == 2


def test_the_estimate_over_a_long_gap_without_a_counter_is_fully_uncertain() -> None:
    reported = account_of(TrueGpu(), [0.0, 1.0, 101.0], counts=False).to_wire()
    assert reported.energy_millijoules == 10_100_000
    assert reported.uncertainty_millijoules == 10_000_000


def test_samples_without_values_lose_no_energy() -> None:
    gpu = TrueGpu([(0.0, 100.0), (3.0, 500.0)])
    account = account_of(gpu, times(2, 0.5))
    account.add(gpu.sample(4.0, counts=False, has_power=False))
    account.add(gpu.sample(5.0, counts=False))
    account.add(gpu.sample(6.0))
    assert account.to_wire().energy_millijoules == gpu.counter(6.0)


def test_the_accounts_time_continues_if_the_clock_goes_back() -> None:
    gpu = TrueGpu()
    account = GpuAccount(GPU, "A100")
    for moment, clock in [(1.0, 50.0), (2.0, 51.0), (3.0, 0.0), (4.0, 1.0)]:
        account.add(gpu.sample(moment)._replace(clock_seconds=clock))
    assert account.to_wire().time_seconds == 52.0


POWERS = st.lists(st.tuples(st.floats(0.1, 5.0), st.sampled_from([0.0, 60.0, 350.0, 700.0])), min_size=1, max_size=8)


@given(POWERS, st.lists(st.floats(0.03, 2.0), min_size=2, max_size=40), st.lists(st.floats(0.5, 30.0), max_size=2))
def test_cumulative_energy_never_falls_and_is_correct_within_its_uncertainty(
    powers: list[tuple[float, float]], waits: list[float], resets: list[float]
) -> None:
    since = [0.0, *itertools.accumulate(wait for wait, _ in powers)]
    gpu = TrueGpu([(begin, watts) for begin, (_, watts) in zip(since, powers, strict=False)], resets=sorted(resets))
    moments = [1.0 + moment for moment in itertools.accumulate(waits)]
    account = GpuAccount(GPU, "A100")
    energies = []
    for moment in moments:
        account.add(gpu.sample(moment))
        energies.append(account.to_wire().energy_millijoules)
    assert energies == sorted(energies)
    if not any(moments[0] < reset <= moments[-1] for reset in resets):
        actual = (gpu.energy(moments[-1]) - gpu.energy(moments[0])) * 1000
        # Energy not yet in the counter at the first and the last reading: one update at maximum power.
        assert abs(energies[-1] - actual) <= 700_000 * gpu.step_seconds + 2


@given(POWERS, st.floats(0.0, 20.0), st.floats(0.0, 20.0))
def test_snapshots_never_fall_with_time(powers: list[tuple[float, float]], one: float, other: float) -> None:
    since = [0.0, *itertools.accumulate(wait for wait, _ in powers)]
    gpu = TrueGpu([(begin, watts) for begin, (_, watts) in zip(since, powers, strict=False)])
    account = account_of(gpu, times(15, 0.1))
    low, high = sorted((one, other))
    assert account.snapshot_at(low).energy_millijoules <= account.snapshot_at(high).energy_millijoules + 1e-6
