"""The trainings' notes: beside the simulator's state a file a pod, a line an entry. paced_training.py writes."""

import json
from dataclasses import dataclass
from pathlib import Path

FOLDER = "journal"
BEGINS = "begins"
HAS_ALIGNED = "has aligned"
WORKED = "worked"


@dataclass(frozen=True)
class Entry:
    """One record of a pod.

    Attributes:
        what: It `BEGINS`, it `HAS_ALIGNED` its GPUs' times, or it has `WORKED` since the entry before.
        seconds: The monotonic clock, which is one for all pods of a machine.
        joules: Of each of its GPUs, by uuid, what the simulator had integrated.
    """

    pod: str
    what: str
    seconds: float
    joules: dict[str, float]


def read_journal(folder: Path) -> list[Entry]:
    """All that was noted, pod by pod."""
    entries = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            said = json.loads(line)
            joules = {uuid: microjoules / 1e6 for uuid, microjoules in said["energy_microjoules"].items()}
            entries.append(Entry(path.stem, said["what"], said["seconds"], joules))
    return entries
