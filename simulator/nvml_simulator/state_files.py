"""State files of simulated GPUs, which the processes that use them share."""

import errno
import os
from pathlib import Path
from typing import Literal, get_args

from nvml_simulator.compilation import build_library
from nvml_simulator.models import model_named
from nvml_simulator.simulated_library import load
from wattloop.errors import OperationError, UsageError

STATE_VARIABLE = "WATTLOOP_SIMULATED_GPUS_STATE"
LOCK_VARIABLE = "WATTLOOP_AGENT_LOCK_DIRECTORY"
MAX_GPUS = 64

Clock = Literal["wall", "scaled", "virtual"]
Permission = Literal["root", "anyone", "nobody"]


def create(
    path: Path | str,
    *,
    model: str = "A100",
    count: int = 4,
    clock: Clock = "wall",
    scale: float = 1.0,
    seed: int = 0,
    permission: Permission = "root",
    replace: bool = False,
) -> Path:
    """Create a state file of ``count`` idle GPUs of one model.

    Args:
        path: Path of the file, which is created atomically.
        model: ``A40``, ``V100``, ``A100``, ``H100``, ``H200``, ``P100`` or ``K80``; see `nvml_simulator.models`.
        count: Number of GPUs, from 0 (a driver without a GPU) to 64.
        clock: ``wall``: the system's clock; ``scaled``: ``scale`` times as fast; ``virtual``:
            advances only with work.
        scale: Simulated seconds per real second with the scaled clock.
        seed: Seed of UUIDs, serial numbers, start values of the counters and phases of the sensors:
            0 to 2^64 - 1.
        permission: Processes that may change GPUs: ``root`` (CAP_SYS_ADMIN, as for the real
            driver), ``anyone`` or ``nobody``.
        replace: Whether to replace an existing file. Processes that have the old one open keep it.

    Returns:
        The path, absolute.

    Raises:
        UsageError: An argument is out of range, or the file exists and ``replace`` is false.
        OperationError: The file can't be written, or the build of the library failed.
    """
    path = Path(path).absolute()
    _check(count=count, clock=clock, scale=scale, seed=seed, permission=permission)
    model = model_named(model).key
    code = load().wattloopSimulatorCreate(
        os.fsencode(path),
        model.encode(),
        count,
        get_args(Clock).index(clock),
        scale,
        get_args(Permission).index(permission),
        seed,
        replace,
    )
    if code == errno.EEXIST:
        raise UsageError(f"{path} exists already; use another path, or replace=True")
    if code != 0:
        raise OperationError(f"cannot write the state of simulated GPUs to {path}: {os.strerror(code)}")
    return path


def _check(*, count: int, clock: str, scale: float, seed: int, permission: str) -> None:
    if not 0 <= count <= MAX_GPUS:
        raise UsageError(f"found {count} simulated GPUs, expected 0 to {MAX_GPUS}")
    if clock not in get_args(Clock):
        raise UsageError(f"found clock {clock!r}, expected one of {', '.join(get_args(Clock))}")
    if permission not in get_args(Permission):
        raise UsageError(f"found permission {permission!r}, expected one of {', '.join(get_args(Permission))}")
    if not 0 < scale <= 1e6:
        raise UsageError(f"found a time scale of {scale}, expected more than 0 and at most 1000000")
    if clock != "scaled" and scale != 1.0:
        raise UsageError(f"found a time scale of {scale} with the {clock} clock, expected it only with clock 'scaled'")
    if not 0 <= seed < 2**64:
        raise UsageError(f"found seed {seed}, expected 0 to 2^64 - 1")


def environment(path: Path | str) -> dict[str, str]:
    """Return the environment in which a child process sees the GPUs of a state file by any NVML binding.

    Returns:
        ``LD_LIBRARY_PATH``, the library's folder before the folders of this process; the path of
        the state file; and the agent's lock directory, beside the state file, so that agents of two
        simulated machines do not conflict.
    """
    folders = [str(build_library().parent)]
    if inherited := os.environ.get("LD_LIBRARY_PATH"):
        folders.append(inherited)
    state = Path(path).absolute()
    return {
        "LD_LIBRARY_PATH": ":".join(folders),
        STATE_VARIABLE: str(state),
        LOCK_VARIABLE: str(state.with_name(f"{state.name}.locks")),
    }
