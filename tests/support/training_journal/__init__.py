"""What pods truly used of simulated GPUs: each training notes the simulator's own energy as it begins and works."""

from support.training_journal.journal import BEGINS, FOLDER, HAS_ALIGNED, WORKED, Entry, read_journal
from support.training_journal.told_energy import ToldEnergy, not_heard
from support.training_journal.truth import NOBODY, Use, uses

__all__ = [
    "BEGINS",
    "FOLDER",
    "HAS_ALIGNED",
    "NOBODY",
    "WORKED",
    "Entry",
    "ToldEnergy",
    "Use",
    "not_heard",
    "read_journal",
    "uses",
]
