"""Attributes a simulated GPU's energy to pods, from the trainings' records.

With the virtual clock a GPU draws power only while a training works on it or aligns its time with
another GPU's. The energy between two records therefore belongs to the author of the second one. The
energy before a pod's first record belongs to the previous pod, which was killed during a step.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from support.training_journal.journal import BEGINS, HAS_ALIGNED, Entry

NOBODY = ""
# How often an agent reads counters.
BURST_SECONDS = 1.0


@dataclass
class EnergyUse:
    """The energy of one pod.

    Attributes:
        aligned_joules: By bringing its GPUs to one time before it worked: idle power, in a jump that no real GPU makes.
        disputed_joules: Of its work, what may be another's who had the GPU at the same time.
        burst_joules: The most that it used in `BURST_SECONDS` of our time, on all its GPUs.
    """

    worked_joules: float = 0.0
    aligned_joules: float = 0.0
    disputed_joules: float = 0.0
    burst_joules: float = 0.0


def energy_uses(
    entries: Iterable[Entry], first: Mapping[str, float], last: Mapping[str, float]
) -> dict[str, EnergyUse]:
    """The energy of each pod, by its name.

    Args:
        entries: The records of all pods, in any order.
        first: Of each GPU, by uuid, what the simulator had integrated before any of the pods began.

    Returns:
        By pod; `NOBODY` has the energy that no pod can have used.

    Example:
        >>> entries = [Entry("a", "begins", 1.0, {"GPU": 10.0}), Entry("a", "worked", 2.0, {"GPU": 15.0})]
        >>> energy_uses(entries, {"GPU": 10.0}, {"GPU": 17.0})
        {'a': EnergyUse(worked_joules=7.0, aligned_joules=0.0, disputed_joules=0.0, burst_joules=5.0)}
    """
    found: defaultdict[str, EnergyUse] = defaultdict(EnergyUse)
    noted = list(entries)
    for uuid in last:
        before, holder = first[uuid], NOBODY
        for entry in sorted((each for each in noted if uuid in each.joules), key=lambda each: _order(each, uuid)):
            used, before = entry.joules[uuid] - before, entry.joules[uuid]
            if entry.what == BEGINS:
                found[holder].worked_joules += used
                holder = entry.pod
            elif entry.what == HAS_ALIGNED:
                found[entry.pod].aligned_joules += used
            else:
                found[entry.pod].worked_joules += used
                if entry.pod != holder:
                    found[entry.pod].disputed_joules += used
                    found[holder].disputed_joules += used
        found[holder].worked_joules += last[uuid] - before
        for pod in {entry.pod for entry in noted}:
            found[pod].burst_joules += _burst([each for each in noted if each.pod == pod and uuid in each.joules], uuid)
    return {pod: use for pod, use in found.items() if pod or use != EnergyUse()}


def _burst(entries: list[Entry], uuid: str) -> float:
    """The most that is between two notes so close together."""
    noted = [(entry.seconds, entry.joules[uuid]) for entry in sorted(entries, key=lambda each: each.seconds)]
    maximum = 0.0
    for first, (seconds, joules) in enumerate(noted):
        within = sum(each <= seconds + BURST_SECONDS for each, _ in noted[first:])
        maximum = max(maximum, noted[first + within - 1][1] - joules)
    return maximum


def _order(entry: Entry, uuid: str) -> tuple[float, float]:
    return entry.joules[uuid], entry.seconds
