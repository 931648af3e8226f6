"""Holds a library to the table, without changing a GPU."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

from nvml_simulator.contract.caller import Caller
from nvml_simulator.contract.codes import SUCCESS, UNINITIALIZED
from nvml_simulator.contract.functions import ANSWERED_UNINITIALIZED, FUNCTIONS
from nvml_simulator.contract.refusals import NULL_HANDLE, refusals


def differences(library: ctypes.CDLL) -> Iterator[str]:
    """Where an initialised library does otherwise than the table says.

    Functions that change a GPU are left alone, and no real NVML is given a null handle: driver 580 documents an error
    for it, and crashes.
    """
    simulated = hasattr(library, "wattloopSimulatorTime")
    caller = Caller(library)
    caller.learn(os.getpid())
    reads = {
        name
        for name, function in FUNCTIONS.items()
        if not function.changes and (caller.has_mig_device or not function.needs_mig)
    }
    for name in sorted(reads - {"nvmlInit_v2", "nvmlInitWithFlags", "nvmlErrorString", "nvmlShutdown"}):
        if (code := caller.call(name)) != SUCCESS:
            yield f"{name}, all right: answered {code}, expected {SUCCESS}"
    for refusal in refusals():
        if refusal.function not in reads or (refusal.wrong == NULL_HANDLE and not simulated):
            continue
        if (code := caller.call(refusal.function, refusal.replaced)) != refusal.code:
            yield f"{refusal}: answered {code}, expected {refusal.code}"
    library.nvmlShutdown()
    for name in sorted(reads - ANSWERED_UNINITIALIZED):
        if (code := caller.call(name)) != UNINITIALIZED:
            yield f"{name}, not initialised: answered {code}, expected {UNINITIALIZED}"
