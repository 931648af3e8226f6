"""Energies of windows, ranks, pods and instructions by recorded readings of a real GPU, and the error of each.

The exact energy is that of the counter at its steps, which all readings of the recording show. Each estimator gets the
few readings that it has in use. ``python tests/client/energy/test_recorded_energies.py`` prints every error.
"""

import itertools
import math
import sys
from array import array
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from support.recorded_gpu import NAMES, RecordedGpu
from wattloop.energy.energy_timeline import EnergyTimeline
from wattloop.energy.gpu_reading import GpuReading
from wattloop.energy_monitor.readings import INTERVAL_SECONDS
from wattloop.pipeline.instruction import Instruction
from wattloop.pipeline.instruction_measurements import ProcessMeasurements
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.plan_messages import Directive
from wattloop_agent.monitor.energy.attribution import Assignment, AssignmentObservation
from wattloop_agent.monitor.energy.energy_snapshot import energy_from
from wattloop_agent.monitor.energy.gpu_account import GpuAccount
from wattloop_agent.monitor.energy.ledger import Ledger

GPU = "GPU-1"
# Steps of the counter in a window: 0.1, 0.3, 1 and 3 s.
LENGTHS = (1, 3, 10, 30)
# Root mean square and largest error, in joules, on commit af68d63: no change of an estimator may raise one.
FIGURES = {
    ("windows", "h200_steady", "0.1 s"): (1.9129, 6.3994),
    ("windows", "h200_steady", "0.3 s"): (2.4512, 6.1794),
    ("windows", "h200_steady", "1 s"): (3.4111, 8.8748),
    ("windows", "h200_steady", "3 s"): (8.9466, 14.3194),
    ("windows", "h200_burst", "0.1 s"): (2.3201, 6.8468),
    ("windows", "h200_burst", "0.3 s"): (3.1541, 9.8223),
    ("windows", "h200_burst", "1 s"): (3.1065, 11.379),
    ("windows", "h200_burst", "3 s"): (4.2144, 10.8138),
    ("ranks", "h200_steady", "0.3 s"): (2.555, 6.0181),
    ("ranks", "h200_steady", "1 s"): (1.181, 1.5463),
    ("ranks", "h200_steady", "3 s"): (1.1409, 1.241),
    ("ranks", "h200_burst", "0.3 s"): (14.7228, 27.4319),
    ("ranks", "h200_burst", "1 s"): (9.178, 17.2356),
    ("ranks", "h200_burst", "3 s"): (16.7744, 23.3898),
    ("accounts", "h200_steady", "0.1 and 0.1 s"): (0.9953, 1.7316),
    ("accounts", "h200_steady", "1 and 1 s"): (7.8533, 15.7833),
    ("accounts", "h200_steady", "0.1 and 1 s"): (6.6728, 13.6436),
    ("accounts", "h200_steady", "0.1 and 10 s"): (8.3824, 16.6581),
    ("accounts", "h200_burst", "0.1 and 0.1 s"): (12.6553, 20.7534),
    ("accounts", "h200_burst", "1 and 1 s"): (31.8783, 60.2927),
    ("accounts", "h200_burst", "0.1 and 1 s"): (30.1918, 59.2273),
    ("accounts", "h200_burst", "0.1 and 10 s"): (33.0178, 68.6176),
    ("pods", "h200_steady", "0.1 and 0.1 s"): (2.5448, 3.8419),
    ("pods", "h200_steady", "1 and 1 s"): (8.4032, 14.1953),
    ("pods", "h200_steady", "0.1 and 1 s"): (8.1996, 12.9338),
    ("pods", "h200_burst", "0.1 and 0.1 s"): (18.0885, 26.4814),
    ("pods", "h200_burst", "1 and 1 s"): (40.4234, 58.79),
    ("pods", "h200_burst", "0.1 and 1 s"): (87.901, 121.0574),
    ("instructions", "h200_steady", "backward"): (18.3637, 18.3637),
    ("instructions", "h200_steady", "forward"): (2.0075, 2.0075),
    ("instructions", "h200_burst", "backward"): (122.0042, 122.0042),
    ("instructions", "h200_burst", "forward"): (63.9275, 63.9275),
}
# (name of the estimated interval, error in joules, stated uncertainty in joules).
Error = tuple[str, float, float]


def windows(gpu: RecordedGpu) -> Iterator[Error]:
    """Windows of an `EnergyMonitor`, which reads every 67 ms."""
    for phase in (0.0, 0.017, 0.034, 0.051):
        timeline = EnergyTimeline()
        for each in gpu.every(INTERVAL_SECONDS, phase):
            timeline.add(each)
        for length in LENGTHS:
            for begin, end in zip(gpu.steps[5:-5], gpu.steps[5 + length : -5], strict=False):
                energy = timeline.between(begin, end)
                assert not energy.missing
                yield f"{length / 10:g} s", energy.joules - gpu.joules(begin, end), energy.deviation_joules


def ranks(gpu: RecordedGpu) -> Iterator[Error]:
    """Reports of a rank: the difference of two readings of the counter."""
    for seconds, pairs in ((0.3, 1), (1.0, 1), (1.0, 3)):
        readings = list(gpu.every(seconds, 0.4))
        for first, last in zip(readings, readings[pairs:], strict=False):
            counted = (last.cumulative_millijoules - first.cumulative_millijoules) / 1e3
            yield f"{seconds * pairs:g} s", counted - gpu.joules(first.end_seconds, last.end_seconds), math.inf


def samples(gpu: RecordedGpu, interval: float, counter_interval: float) -> Iterator[GpuReading]:
    """What an agent samples."""
    due = 0.0
    for each in gpu.every(interval):
        counts = each.begin_seconds >= due
        due = due if not counts else each.begin_seconds + counter_interval - interval / 2
        yield each._replace(
            energy_millijoules=each.energy_millijoules if counts else None,
            power_watts=gpu.mean_watts(each.begin_seconds),
            clock_seconds=each.begin_seconds,
        )


def accounts(gpu: RecordedGpu) -> Iterator[Error]:
    """The agent's account between two moments, with readings of power and of the counter every so many seconds."""
    for interval, counter_interval in ((0.1, 0.1), (1.0, 1.0), (0.1, 1.0), (0.1, 10.0)):
        account = GpuAccount(GPU, "H200")
        for sample in samples(gpu, interval, counter_interval):
            account.add(sample)
        for begin, end in itertools.product((0.4, 1.13, 2.0), (2.37, 3.0, 3.9)):
            energy, uncertainty = energy_from(account.snapshot_at(begin), account.snapshot_at(end))
            name = f"{interval:g} and {counter_interval:g} s"
            yield name, energy / 1e3 - gpu.joules(begin, end), uncertainty / 1e3


def pods(gpu: RecordedGpu) -> Iterator[Error]:
    """A pod that has the GPU between two observations, by a ledger."""
    pod = Assignment("uid-1", "default", "pod", "main", GPU)
    for interval, counter_interval in ((0.1, 0.1), (1.0, 1.0), (0.1, 1.0)):
        for begin in (0.5, 1.1, 1.7):
            ledger, observed = Ledger(), iter([0.3 * number for number in range(1, 20)])
            moment = next(observed)
            for sample in samples(gpu, interval, counter_interval):
                while moment <= sample.begin_seconds:
                    ledger.observe(
                        AssignmentObservation(moment, moment, (pod,) if begin <= moment <= begin + 2 else ())
                    )
                    moment = next(observed)
                ledger.add_samples([sample], sample.end_seconds)
            (usage,) = ledger.usages()
            exact = gpu.joules(usage.start_time_seconds, usage.time_seconds)
            name = f"{interval:g} and {counter_interval:g} s"
            yield name, usage.energy_millijoules / 1e3 - exact, usage.uncertainty_millijoules / 1e3


def instructions(gpu: RecordedGpu) -> Iterator[Error]:
    """Two instructions in turns, of which one runs while the sensor shows a load."""
    threshold = 400.0 if gpu.name == "h200_burst" else 690.0
    stamps = [gpu.readings[0].begin_seconds]
    kinds: list[str] = []
    for before, after in itertools.pairwise(gpu.readings):
        busy = "forward" if (before.instant_watts or 0.0) > threshold else "backward"
        if not kinds or kinds[-1] != busy:
            kinds.append(busy)
            stamps.append(after.begin_seconds)
        stamps[-1] = after.begin_seconds
    timeline = EnergyTimeline()
    for each in gpu.every(INTERVAL_SECONDS):
        timeline.add(each)
    found = ProcessMeasurements([lambda first, final: timeline.edges(first, final=final)], first_rank=True)
    both = [moment for pair in itertools.pairwise(stamps) for moment in pair]
    listed = tuple(Instruction(kind, 0, number) for number, kind in enumerate(kinds))
    found.add(IterationRecord(0, Directive(), listed, (), stamps[0], stamps[-1], array("d", both)))
    found.end_phase()
    found.collect(math.inf)
    (powers,) = filter(None, found.powers())
    for activity, power in sorted(powers.items()):
        own = [pair for pair, kind in zip(itertools.pairwise(stamps), kinds, strict=True) if kind == activity.kind]
        inside = [(begin, end) for begin, end in own if gpu.steps[0] <= begin and end <= gpu.steps[-1]]
        exact, seconds = sum(gpu.joules(*pair) for pair in inside), sum(end - begin for begin, end in inside)
        yield activity.kind, power.value * seconds - exact, power.error * seconds


ESTIMATORS: dict[str, Callable[[RecordedGpu], Iterator[Error]]] = {
    each.__name__: each for each in (windows, ranks, accounts, pods, instructions)
}


@cache
def errors(estimator: str, recording: str) -> dict[str, list[tuple[float, float]]]:
    """(error, stated uncertainty) of each interval, by its name."""
    found: dict[str, list[tuple[float, float]]] = {}
    for name, error, stated in ESTIMATORS[estimator](RecordedGpu(recording)):
        found.setdefault(name, []).append((error, stated))
    return found


@pytest.mark.parametrize("recording", NAMES)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_error_of_an_energy_by_recorded_readings_has_grown(estimator: str, recording: str) -> None:
    found = errors(estimator, recording)
    assert {(estimator, recording, name) for name in found} == {
        key for key in FIGURES if key[:2] == (estimator, recording)
    }
    for name, pairs in found.items():
        mean_square, largest = FIGURES[estimator, recording, name]
        assert math.sqrt(sum(error**2 for error, _ in pairs) / len(pairs)) <= mean_square
        assert max(abs(error) for error, _ in pairs) <= largest


@pytest.mark.parametrize("recording", NAMES)
@pytest.mark.parametrize("estimator", ["accounts", "pods"])
def test_the_energy_of_a_pod_by_recorded_readings_is_within_its_bound(estimator: str, recording: str) -> None:
    for pairs in errors(estimator, recording).values():
        assert all(abs(error) <= bound for error, bound in pairs)


if __name__ == "__main__":
    for estimator, recording in itertools.product(ESTIMATORS, NAMES):
        for name, found in errors(estimator, recording).items():
            for error, stated in found:
                sys.stdout.write(f"{recording} {estimator} {name}: {error!r} {stated!r}\n")
