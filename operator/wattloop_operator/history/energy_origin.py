"""Where the energies of a local run come from, and what a reader of its figures must know about it.

A training on simulated GPUs that puts no load on them uses the energy of idle GPUs. Such figures look like
others, so every view of them says what they are.
"""

from collections.abc import Sequence
from enum import StrEnum

from wattloop_operator.api.training_recurrence import Attribution
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.reconcile.energy.attempt_usage import READ_PROCESSORS
from wattloop_operator.store import AttemptUsage

# On the job of a local run: an `EnergyOrigin`. A job of a cluster has none.
ANNOTATION = "wattloop.dev/energy-origin"
# Of the simulated GPUs, by their product names.
IDLE_WATTS = {
    "Tesla K80": 27.0,
    "Tesla P100-SXM2-16GB": 30.0,
    "NVIDIA A40": 30.0,
    "Tesla V100-SXM2-32GB": 42.0,
    "NVIDIA A100-SXM4-80GB": 55.0,
    "NVIDIA H100 80GB HBM3": 72.0,
    "NVIDIA H200": 79.6,
}
# Energy counters are updated every 0.1 s.
COUNTER_SECONDS = 0.2
TOLERANCE = 1.02

IDLE_NOTE = "simulated GPU without a declared load: the energies are those of an idle simulated GPU, not of this script"


class EnergyOrigin(StrEnum):
    """What the energy of an attempt was measured on.

    GPU: this machine's own GPUs.
    SIMULATED: simulated GPUs with the load that the training puts on them.
    SIMULATED_LOAD: simulated GPUs with a declared load.
    PROCESSOR: this machine's processors, because it has no GPU.
    UNKNOWN: nothing: there is no GPU, and no readable counter of the processors.
    SIMULATED_IDLE: simulated GPUs on which the training put no load.
    SHARED: GPUs that others used, too, of a local run or of a cluster.
    """

    GPU = "gpu"
    SIMULATED = "simulated"
    SIMULATED_LOAD = "simulated-load"
    PROCESSOR = "processor"
    UNKNOWN = "unknown"
    SIMULATED_IDLE = "simulated-idle"
    SHARED = "shared"


def origin_of_attempt(record: ObservationRecord | AttemptUsage, origin: str | None) -> str | None:
    """The origin of one attempt's energy."""
    if record.attribution == Attribution.SHARED.value:
        return EnergyOrigin.SHARED
    if origin != EnergyOrigin.SIMULATED or not record.gpu_count:
        return origin
    idle_watts = record.gpu_count * IDLE_WATTS.get(record.gpu_product, 0.0)
    idle_joules = TOLERANCE * idle_watts * (record.time_seconds + COUNTER_SECONDS)
    return EnergyOrigin.SIMULATED_IDLE if record.energy_joules <= idle_joules else origin


NOTES = {
    EnergyOrigin.SHARED: "others used the GPUs, too: the energies are upper bounds, from which nothing is learned and "
    "no saving follows",
    EnergyOrigin.SIMULATED_IDLE: IDLE_NOTE,
    EnergyOrigin.PROCESSOR: "no GPU: the energies are those of this machine's processors (RAPL), of all programs",
    EnergyOrigin.UNKNOWN: "no GPU, and no readable RAPL counter: the energies are unknown, only the times are measured",
}
REMEDIES = {
    EnergyOrigin.SIMULATED_IDLE: "declare a load: --simulated-load cpu, or busy=0.8 (docs/simulated-gpus.md)",
    EnergyOrigin.UNKNOWN: READ_PROCESSORS,
}


def energy_note(origins: Sequence[str | None]) -> str:
    """What a reader of these attempts' energies must know; empty if there is nothing."""
    counts = ((note, sum(each == origin for each in origins)) for origin, note in NOTES.items())
    return "; ".join(
        note if count == len(origins) else f"{note} ({count} of {len(origins)} attempts)"
        for note, count in counts
        if count
    )


def energy_remedy(origins: Sequence[str | None]) -> str:
    """What to do about it; empty if nothing is to be done."""
    return next((remedy for origin, remedy in REMEDIES.items() if origin in origins), "")


def energy_advice(origins: Sequence[str | None]) -> str:
    """Note and remedy as one sentence; empty if there is nothing to know."""
    return "; ".join(filter(None, (energy_note(origins), energy_remedy(origins))))
