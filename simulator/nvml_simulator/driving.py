"""Functions on the `nvml_simulator.Machine` of the state file that the environment sets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from nvml_simulator.description import Description
from nvml_simulator.simulated_machine import NVML_SUCCESS, GpuName, Machine
from nvml_simulator.state_files import STATE_VARIABLE
from wattloop.errors import UsageError


def machine() -> Machine:
    """Return the machine of ``$WATTLOOP_SIMULATED_GPUS_STATE``, opened once per file.

    Raises:
        UsageError: The variable is not set.
        OperationError: The file is not a valid state file.
    """
    path = os.environ.get(STATE_VARIABLE)
    if not path:
        raise UsageError(f"{STATE_VARIABLE} is not set; set it to the state file that nvml_simulator.create returned")
    found = Path(path)
    # With the inode, because a new file at the same path is another machine.
    return _open(path, found.stat().st_ino if found.exists() else 0)


@lru_cache(maxsize=8)
def _open(path: str, _inode: int) -> Machine:
    return Machine(path)


def occupy(gpus: GpuName | Sequence[GpuName], work: float, intensity: float) -> float:
    """See `Machine.occupy`."""
    return machine().occupy(gpus, work, intensity)


def clock_seconds(gpu: GpuName | None = None) -> float:
    """See `Machine.clock_seconds`."""
    return machine().clock_seconds(gpu)


def inject_fault(
    function: str,
    *,
    code: int = NVML_SUCCESS,
    gpu: GpuName | None = None,
    first_call: int = 1,
    count: int | None = None,
    delay_seconds: float = 0.0,
) -> int:
    """See `Machine.inject_fault`."""
    return machine().inject_fault(
        function, code=code, gpu=gpu, first_call=first_call, count=count, delay_seconds=delay_seconds
    )


def describe(path: Path | str) -> Description:
    """Return the exact state of the GPUs of a state file; see `Machine.describe`."""
    with Machine(path) as opened:
        return opened.describe()
