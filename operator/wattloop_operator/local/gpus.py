"""The GPUs of a local run: this machine's own, or simulated ones; and the node agent that looks after them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wattloop.errors import CannotError, UsageError

READY_SECONDS = 60
END_SECONDS = 15
STATE_VARIABLE = "WATTLOOP_SIMULATED_GPUS_STATE"


@dataclass(frozen=True)
class Simulation:
    """Which GPUs to simulate.

    Attributes:
        count: How many.
        model: A40, V100, A100, H100 or H200.
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
        UsageError: There is no such model, or a number is out of bounds.
        CannotError: They cannot be made.
    """
    words = [sys.executable, "-m", "nvml_simulator", str(state), "--permission", "anyone"]
    words += ["--model", simulation.model, "--count", str(simulation.count), "--seed", str(simulation.seed)]
    if simulation.time_scale is None:
        words += ["--clock", "virtual"]
    else:
        words += ["--clock", "scaled", "--scale", str(simulation.time_scale)]
    # Simulated GPUs are gone with the run, as real ones are with a reboot: counters start anew, limits are the default.
    state.unlink(missing_ok=True)
    made = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603  our own program, as a list
    if made.returncode == 1 and "found" in made.stderr:
        raise UsageError(made.stderr.strip().removeprefix("nvml_simulator: "))
    if made.returncode != 0:
        raise CannotError(f"simulated GPUs cannot be made: {made.stderr.strip() or made.returncode}")
    environment = json.loads(made.stdout)
    return {str(name): str(value) for name, value in environment.items()}


@contextlib.contextmanager
def running_agent(folder: Path, private: Path, environment: dict[str, str]) -> Iterator[Path]:
    """Run the node agent as a process for as long as the block lasts; it restores every GPU when it ends.

    Args:
        folder: Where its leases and its log are kept.
        private: A folder of this user alone, for its socket.
        environment: What it needs to see the GPUs.

    Yields:
        Its socket.

    Raises:
        CannotError: It does not start.
    """
    socket, log = private / "agent.sock", folder / "agent.log"
    reading, writing = os.pipe()
    words = [sys.executable, "-m", "wattloop_agent", "--socket", str(socket), "--ready-descriptor", str(writing)]
    words += ["--state-directory", str(folder / "agent"), "--watch-parent", str(os.getpid())]
    with log.open("ab") as output:
        agent = subprocess.Popen(  # noqa: S603  our own program, as a list
            words,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(writing,),
            # Not in this terminal's group: at Ctrl-C it shall restore the GPUs when told, not when the key is pressed.
            start_new_session=True,
        )
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as ready:
            if not ready.readline():
                code = agent.wait(timeout=READY_SECONDS)
                raise CannotError(f"the node agent did not start (exit code {code}); see {log}")
        yield socket
    finally:
        agent.terminate()
        try:
            agent.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            agent.kill()
            agent.wait()
