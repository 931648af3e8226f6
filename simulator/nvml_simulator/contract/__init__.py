"""What NVML documents of every function that is offered here: its parameters, and how it refuses wrong ones.

The tests hold the simulated library to this table. ``python -m nvml_simulator.contract`` holds whichever
``libnvidia-ml.so.1`` the process loads to it, so that the table itself can be checked on a machine with a real GPU;
there nothing is ever set.
"""

from __future__ import annotations

from nvml_simulator.contract.caller import Caller
from nvml_simulator.contract.codes import INVALID_ARGUMENT, NO_PERMISSION, NOT_SUPPORTED, SUCCESS, UNINITIALIZED
from nvml_simulator.contract.comparison import differences
from nvml_simulator.contract.functions import ANSWERED_UNINITIALIZED, FUNCTIONS
from nvml_simulator.contract.parameters import Device, Function, MigDevice
from nvml_simulator.contract.refusals import Refusal, refusals

__all__ = [
    "ANSWERED_UNINITIALIZED",
    "FUNCTIONS",
    "INVALID_ARGUMENT",
    "NOT_SUPPORTED",
    "NO_PERMISSION",
    "SUCCESS",
    "UNINITIALIZED",
    "Caller",
    "Device",
    "Function",
    "MigDevice",
    "Refusal",
    "differences",
    "refusals",
]
