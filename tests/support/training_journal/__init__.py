"""The actual energy of pods on simulated GPUs: each training records the simulator's energy around each step."""

from support.training_journal.energy_shares import NOBODY, EnergyUse, energy_uses
from support.training_journal.journal import BEGINS, FOLDER, HAS_ALIGNED, WORKED, Entry, read_journal
from support.training_journal.reported_energy import ReportedEnergy, not_reported

__all__ = [
    "BEGINS",
    "FOLDER",
    "HAS_ALIGNED",
    "NOBODY",
    "WORKED",
    "EnergyUse",
    "Entry",
    "ReportedEnergy",
    "energy_uses",
    "not_reported",
    "read_journal",
]
