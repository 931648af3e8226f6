"""A counter that is read now and then, power that is looked at all the time: the account in between."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agents.simulated_day import GPU, TrueGpu
from wattloop_agent.monitor.energy.energy_history import energy_from
from wattloop_agent.monitor.energy.gpu_account import GpuAccount

LOOKS_PER_COUNTER = 100
INTERVAL_SECONDS = 0.1


class AveragingGpu(TrueGpu):
    """One that tells the mean of the last second as its power, as GPUs do from Ampere on."""

    def power(self, moment: float) -> float:
        return self.energy(moment) - self.energy(moment - 1.0)


def account_of(gpu: TrueGpu, looks: int, per_counter: int = LOOKS_PER_COUNTER) -> GpuAccount:
    account = GpuAccount(GPU, "H200")
    for number in range(looks):
        account.add(gpu.sample(10 + number * INTERVAL_SECONDS, counts=number % per_counter == 0))
    return account


def moment_of(look: int) -> float:
    return 10 + look * INTERVAL_SECONDS


BURSTS = [(0.0, 90.0), *((12 + 0.67 * each, (700.0, 100.0)[each % 2]) for each in range(40))]


@pytest.mark.parametrize("kind", [TrueGpu, AveragingGpu])
@pytest.mark.parametrize("look", [1, 7, 30, 99, 100, 101, 150, 199])
def test_between_two_readings_of_the_counter_the_account_is_right_within_what_it_says(
    kind: type[TrueGpu], look: int
) -> None:
    gpu = kind([(0.0, 100.0), (12.3, 700.0), (17.1, 90.0), (25.0, 400.0)])
    told = account_of(gpu, look + 1).to_wire()
    truth = (gpu.energy(moment_of(look)) - gpu.energy(10.0)) * 1000
    assert abs(told.energy_millijoules - truth) <= told.uncertainty_millijoules + 100 * 100 + 1


@pytest.mark.parametrize("kind", [TrueGpu, AveragingGpu])
def test_in_bursts_each_moment_is_right_within_its_uncertainty_also_once_the_counter_is_read_again(
    kind: type[TrueGpu],
) -> None:
    gpu = kind(BURSTS)
    account = account_of(gpu, 251)
    for look in range(0, 250, 3):
        moment = moment_of(look) + 0.04
        energy, uncertainty = energy_from(account.snapshot_at(10.0), account.snapshot_at(moment))
        truth = (gpu.energy(moment) - gpu.energy(10.0)) * 1000
        assert abs(energy - truth) <= uncertainty + 1, moment
        assert uncertainty < 2_000_000


def test_a_steady_gpu_needs_no_counter_to_be_known_within_a_step_of_it() -> None:
    gpu = TrueGpu([(0.0, 400.0)])
    told = account_of(gpu, 80).to_wire()
    assert abs(told.energy_millijoules - 400_000 * 7.9) <= 400 * 100 + 1
    assert told.uncertainty_millijoules <= 400 * 100 + 1


def test_a_load_that_began_between_two_readings_of_the_counter_is_placed_where_power_saw_it() -> None:
    gpu = TrueGpu([(0.0, 100.0), (15.0, 700.0)])
    seen, unseen = account_of(gpu, 101), GpuAccount(GPU, "H200")
    for moment in (10.0, 20.0):
        unseen.add(gpu.sample(moment))
    until_load = seen.snapshot_at(15.0).energy_millijoules
    assert until_load == pytest.approx(500_000, abs=60_000)
    assert unseen.snapshot_at(15.0).energy_millijoules == pytest.approx(2_000_000, rel=0.02)


def test_over_a_restart_the_counter_knows_what_power_had_estimated() -> None:
    gpu = AveragingGpu([(0.0, 100.0), (13.0, 700.0), (14.0, 100.0)])
    before = account_of(gpu, 60)
    told = before.to_wire()
    after = GpuAccount.from_record(json.loads(json.dumps(before.to_record())), same_boot=True)
    assert after.to_wire().energy_millijoules >= told.energy_millijoules
    after.add(gpu.sample(20.0))
    assert after.to_wire().energy_millijoules == max(gpu.counter(20.0) - gpu.counter(10.0), told.energy_millijoules)
    assert after.to_wire().time_seconds == pytest.approx(before.to_wire().time_seconds + 20.0 - moment_of(59))


def test_a_counter_that_begins_anew_between_two_readings_is_bridged_by_the_power_that_was_seen() -> None:
    gpu = TrueGpu([(0.0, 100.0), (13.0, 600.0), (17.0, 100.0)], resets=[18.0])
    account = account_of(gpu, 101)
    told = account.to_wire()
    truth = (gpu.energy(20.0) - gpu.energy(10.0)) * 1000
    assert account.resets == 1
    assert told.energy_millijoules == pytest.approx(truth, rel=0.02)
    assert abs(told.energy_millijoules - truth) <= told.uncertainty_millijoules


POWERS = st.lists(st.tuples(st.floats(0.2, 5.0), st.sampled_from([0.0, 60.0, 350.0, 700.0])), min_size=1, max_size=8)


@given(POWERS, st.integers(2, 60), st.sampled_from([TrueGpu, AveragingGpu]))
def test_told_energy_never_falls_and_ends_at_the_counter(
    powers: list[tuple[float, float]], per_counter: int, kind: type[TrueGpu]
) -> None:
    since = [0.0, *itertools.accumulate(10 + wait for wait, _ in powers)]
    gpu = kind([(begin, watts) for begin, (_, watts) in zip(since, powers, strict=False)])
    account = GpuAccount(GPU, "H200")
    energies = []
    for look in range(per_counter * 3 + 1):
        account.add(gpu.sample(moment_of(look), counts=look % per_counter == 0))
        energies.append(account.to_wire().energy_millijoules)
    assert energies == sorted(energies)
    counted = gpu.counter(moment_of(per_counter * 3)) - gpu.counter(10.0)
    told = account.to_wire()
    assert 0 <= told.energy_millijoules - counted <= told.uncertainty_millijoules
    snapshots = [account.snapshot_at(9.5 + 0.07 * number).energy_millijoules for number in range(per_counter * 5)]
    assert all(one <= other + 1e-6 for one, other in itertools.pairwise(snapshots))
