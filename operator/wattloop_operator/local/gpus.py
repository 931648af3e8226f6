"""The GPUs of a local run: this machine's own, or simulated ones."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from wattloop import interruption
from wattloop.errors import OperationError

MODELS = ("A40", "V100", "A100", "H100", "H200")
MAX_GPUS = 64
MAX_TIME_SCALE = 1e6


@dataclass(frozen=True)
class Simulation:
    """Which GPUs to simulate.

    Attributes:
        count: How many, at most `MAX_GPUS`.
        model: One of `MODELS`.
        time_scale: Simulated seconds per real second; None: time moves only with the training's work, so that the same
            training gives the same figures on every machine.
        seed: Of the GPUs' uuids and counters.
    """

    count: int
    model: str
    time_scale: float | None = None
    seed: int = 0


def has_driver() -> bool:
    """Whether this machine has an NVIDIA driver's management library."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def simulated(simulation: Simulation, state: Path) -> dict[str, str]:
    """Make the simulated GPUs, or find those of an earlier run, and return the environment in which they are seen.

    Args:
        simulation: Which.
        state: Their state file.

    Raises:
        OperationError: They cannot be made.
        wattloop.interruption.Interrupted: This program was asked to end meanwhile.
    """
    words = [sys.executable, "-m", "nvml_simulator", str(state), "--permission", "anyone"]
    words += ["--model", simulation.model, "--count", str(simulation.count), "--seed", str(simulation.seed)]
    if simulation.time_scale is None:
        words += ["--clock", "virtual"]
    else:
        words += ["--clock", "scaled", "--scale", str(simulation.time_scale)]
    # Simulated GPUs are gone with the run, as real ones are with a reboot: counters start anew, limits are the default.
    state.unlink(missing_ok=True)
    made = subprocess.Popen(  # noqa: S603  our own program, as a list
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Ctrl-C reaches it through this program alone.
        start_new_session=True,
    )
    with made:
        output, told = interruption.call_cancellable(made.communicate, lambda: _interrupt(made.pid))
    if made.returncode != 0:
        raise OperationError(f"simulated GPUs cannot be made: {told.strip() or made.returncode}")
    environment = json.loads(output)
    return {str(name): str(value) for name, value in environment.items()}


def _interrupt(group: int) -> None:
    """End a program and the compiler that it may have started; both remove their temporary files."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGINT)


def gpu_count(socket: Path) -> int:
    """How many GPUs the agent at this socket offers to this user.

    Raises:
        OperationError: It cannot say, or there is none.
    """
    from wattloop.agent import AgentConnection, AgentRequestError  # noqa: PLC0415 - the options need the constants alone

    try:
        with AgentConnection(socket) as agent:
            count = len(agent.gpus())
    except AgentRequestError as refusal:
        raise OperationError(
            f"this machine's GPUs cannot be used: {refusal}; or simulate some: --simulated-gpus 1"
        ) from None
    if count == 0:
        raise OperationError("this machine has a driver, but no GPU; simulate some: --simulated-gpus 1")
    return count
