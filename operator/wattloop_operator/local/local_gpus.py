"""The GPUs of a local run: this machine's own, or simulated ones with a declared load.

A load is what a training that does not know the simulator would do with its GPUs. Without one, simulated GPUs stay idle
while such a training runs, and its energies are those of idle GPUs.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from wattloop import interruption
from wattloop.errors import OperationError
from wattloop_operator.parent_process import kill_with_parent

MODELS = ("A40", "V100", "A100", "H100", "H200", "P100", "K80")
# Older than Volta: their energy is the integral of their power.
MODELS_WITHOUT_COUNTER = ("P100", "K80")
MAX_GPUS = 64


@dataclass(frozen=True)
class Simulation:
    """The GPUs to simulate.

    Attributes:
        count: Number of GPUs, at most `MAX_GPUS`.
        model: One of `MODELS`.
        seed: Seed of the GPUs' uuids and counters.
        load: The load that trainings put on them without knowing it; None: none.
        real_time: Whether their time is that of this machine. Otherwise it advances only with the training's work,
            so that the same training gives the same figures on every machine.
    """

    count: int
    model: str
    seed: int = 0
    load: SimulatedLoad | None = None
    real_time: bool = False


def has_driver() -> bool:
    """Whether this machine has an NVIDIA driver's management library."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def simulate_gpus(simulation: Simulation, state: Path) -> dict[str, str]:
    """Create the simulated GPUs, and return the environment variables that select them.

    Args:
        simulation: The GPUs to simulate.
        state: Their state file. An existing one is replaced.

    Raises:
        OperationError: They cannot be created.
        wattloop.interruption.Interrupted: This program was asked to end meanwhile.
    """
    # -P, so that no file of the current folder is imported instead of a module.
    arguments = [sys.executable, "-P", "-m", "nvml_simulator", str(state), "--permission", "anyone"]
    arguments += ["--format", "json"]
    arguments += ["--model", simulation.model, "--count", str(simulation.count), "--seed", str(simulation.seed)]
    arguments += ["--clock", "wall" if simulation.real_time else "virtual"]
    # Simulated GPUs end with the run, as after a reboot: counters restart, and limits are the
    # default.
    state.unlink(missing_ok=True)
    process = subprocess.Popen(  # noqa: S603  our own program, as a list
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Only this program forwards Ctrl-C to it.
        start_new_session=True,
    )
    with process:
        output, errors = interruption.call_cancellable(process.communicate, lambda: _interrupt(process.pid))
    if process.returncode != 0:
        raise OperationError(f"simulated GPUs cannot be created: {errors.strip() or process.returncode}")
    environment = json.loads(output)
    return {str(name): str(value) for name, value in environment.items()}


def _interrupt(group: int) -> None:
    """Interrupt a program and the compiler that it may have started.

    Both remove their temporary files.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGINT)


def given_gpus(socket: Path, variables: Mapping[str, str]) -> tuple[str, ...]:
    """UUIDs of the GPUs that a run may use: those of `CUDA_VISIBLE_DEVICES`, or all that the agent offers.

    Args:
        socket: The agent's socket.
        variables: The environment variables of the run.

    Raises:
        OperationError: The agent rejects the request, or there is no GPU.
    """
    from wattloop.gpus.agent import AgentConnection, AgentRequestError  # noqa: PLC0415 - the options need the constants alone
    from wattloop.gpus.process_gpus import CUDA_VARIABLE, given_to_process  # noqa: PLC0415 - as above

    try:
        with AgentConnection(socket) as agent:
            offered = agent.gpus()
    except AgentRequestError as refusal:
        raise OperationError(
            f"this machine's GPUs cannot be used: {refusal}; to simulate one: --simulated-gpus 1"
        ) from None
    if not offered:
        raise OperationError("this machine has an NVIDIA driver but no GPU; to simulate one: --simulated-gpus 1")
    given = given_to_process(offered, variables)
    if not given:
        named = f"{CUDA_VARIABLE}={variables.get(CUDA_VARIABLE, '')!r:.80}"
        raise OperationError(
            f"{named} names none of the {len(offered)} GPUs; unset it, or to simulate one: --simulated-gpus 1"
        )
    return tuple(gpu.uuid for gpu in given)


def limit_range(socket: Path) -> tuple[float, float]:
    """The lowest and the highest power limit, in watts, that all GPUs of this user accept.

    Raises:
        OperationError: A GPU has no settable limit, or the agent rejects the request.
    """
    from wattloop.gpus.agent import AgentConnection, AgentRequestError  # noqa: PLC0415 - the options need the constants alone

    try:
        with AgentConnection(socket) as agent:
            limits = {gpu.uuid: gpu.power_limits for gpu in agent.gpus()}
    except AgentRequestError as refusal:
        raise OperationError(f"this machine's GPUs cannot be used: {refusal}") from None
    ranges = [each.allowed_watts for each in limits.values() if each is not None and each.allowed_watts is not None]
    if not ranges or len(ranges) < len(limits):
        raise OperationError("a GPU accepts no power limit from this user: leave --power-limits out, or run as root")
    return max(low for low, _ in ranges), min(high for _, high in ranges)


# On the job of a manifest; the option --simulated-load has precedence.
ANNOTATION = "wattloop.dev/simulated-load"
EXPECTED = "expected cpu, or busy=F with F above 0 and at most 1"
PROCESSOR_TIME = "cpu"


@dataclass(frozen=True)
class SimulatedLoad:
    """A declared load.

    Attributes:
        busy: Share of the training's time in which its GPUs are busy; None: as long as the training uses a
            processor.
    """

    busy: float | None = None

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Read a load.

        Raises:
            ValueError: It is not valid.

        Example:
            >>> SimulatedLoad.of_text("cpu"), SimulatedLoad.of_text("busy=0.8")
            (SimulatedLoad(busy=None), SimulatedLoad(busy=0.8))
        """
        if text == PROCESSOR_TIME:
            return cls()
        name, _, value = text.partition("=")
        try:
            busy = float(value)
        except ValueError:
            busy = 0.0
        if name != "busy" or not 0 < busy <= 1:
            raise ValueError(f"found {text[:40]!r}, {EXPECTED}")
        return cls(busy)

    def __str__(self) -> str:
        """The load in the form that `of_text` reads."""
        return PROCESSOR_TIME if self.busy is None else f"busy={self.busy:g}"


@contextlib.contextmanager
def running_load(load: SimulatedLoad, state: Path) -> Iterator[Callable[[int], None]]:
    """Start the program that puts a load on simulated GPUs; it ends with the block.

    The function that it gives puts load on the GPUs until the process of an id ends.

    Args:
        load: The load.
        state: State file of the GPUs.

    Raises:
        OperationError: It cannot be started.
    """
    share = PROCESSOR_TIME if load.busy is None else f"{load.busy!r}"
    process = subprocess.Popen(  # noqa: S603  our own program, as a list
        [sys.executable, "-P", "-m", "nvml_simulator.process_load", str(state), share],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=kill_with_parent,  # noqa: PLW1509  only async-signal-safe calls are made there
    )

    def follow(pid: int) -> None:
        try:
            if process.stdin is not None:
                process.stdin.write(f"{pid}\n")
                process.stdin.flush()
        except OSError as error:
            raise OperationError(f"the load of the simulated GPUs has ended ({error.strerror}); start again") from error

    with process:
        try:
            output = process.stdout
            line = "" if output is None else interruption.call_cancellable(output.readline, process.kill)
            if line.strip() != "ready":
                raise OperationError("the load of the simulated GPUs cannot be started; see the message above")
            yield follow
        finally:
            process.kill()
