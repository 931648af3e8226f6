"""Energy of pods on simulated GPUs whose time jumps: a training's work takes no time of the node's clock."""

import itertools
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from support.agents.simulated_day import GPU, observation_at, pod
from wattloop.energy.gpu_reading import GpuReading
from wattloop_agent.monitor.energy.ledger import Ledger

# A burst's work at full power: its GPU's clock jumps by the time that this takes.
BUSY_WATTS = 400.0
IDLE_WATTS = 60.0
SECONDS_BETWEEN_OBSERVATIONS = 2.0


@dataclass(frozen=True)
class JumpingGpu:
    """A GPU whose counter and clock jump at bursts (seconds, joules); in between it uses nothing, and time stands."""

    bursts: list[tuple[float, float]]

    def energy(self, moment: float) -> float:
        return sum(joules for since, joules in self.bursts if since <= moment)

    def sample(self, moment: float) -> GpuReading:
        energy = self.energy(moment)
        counter, clock = int(energy * 1000), energy / BUSY_WATTS
        return GpuReading(GPU, moment, moment + 0.003, counter, None, IDLE_WATTS, clock, "A100")


WAITS = st.lists(st.floats(0.01, 3.0), min_size=4, max_size=20)
BURSTS = st.lists(st.tuples(st.floats(0.001, 2.0), st.floats(100.0, 200_000.0)), min_size=1, max_size=12)


@settings(deadline=None)
@given(
    sampled=WAITS,
    bursts=BURSTS,
    first=st.floats(0.1, 10.0),
    last=st.floats(0.1, 10.0),
    paused=st.sampled_from([0.0, 0.0, 0.3, 2.5]),
)
def test_a_pods_energy_is_within_its_uncertainty_however_late_the_samples_are(
    sampled: list[float], bursts: list[tuple[float, float]], first: float, last: float, paused: float
) -> None:
    moments = list(itertools.accumulate((wait for wait, _ in bursts), initial=0.0))[1:]
    gpu = JumpingGpu([(moment, joules) for moment, (_, joules) in zip(moments, bursts, strict=True)])
    begin, end = first, first + last
    ledger, moment, observed = Ledger(), 0.0, 0.0
    waits = itertools.cycle(sampled)
    ledger.add_samples([gpu.sample(0.0)], 0.003)
    while moment < max(end, moments[-1]) + 10.0:
        moment += next(waits)
        while observed < moment + paused:
            ledger.observe(observation_at(observed, *([pod("one")] if begin <= observed < end else [])))
            observed += SECONDS_BETWEEN_OBSERVATIONS
        # The thread that has read the GPU may pause before it adds what it has read.
        ledger.add_samples([gpu.sample(moment)], moment + 0.003 + paused)
        moment += paused
    usages = ledger.usages()
    if not usages:
        assert last < SECONDS_BETWEEN_OBSERVATIONS + 0.1
        return
    (usage,) = usages
    actual = 1000 * (gpu.energy(end) - gpu.energy(begin))
    assert abs(usage.energy_millijoules - actual) <= usage.uncertainty_millijoules + 1
