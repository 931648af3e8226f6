"""The declared load of simulated GPUs: what a training that does not know the simulator would do with its GPUs.

Without one, simulated GPUs stay idle while such a training runs, and its energies are those of idle GPUs.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from wattloop import interruption
from wattloop.errors import OperationError
from wattloop_operator.parent_process import kill_with_parent

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


class LoadProcess:
    """Puts the load of training processes on simulated GPUs.

    Args:
        process: The program that does so, which reads the ids of processes.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def follow(self, pid: int) -> None:
        """Put load on the GPUs until this process ends.

        Raises:
            OperationError: The program has ended.
        """
        if self._process.stdin is None:
            return
        try:
            self._process.stdin.write(f"{pid}\n")
            self._process.stdin.flush()
        except OSError as error:
            raise OperationError(f"the load of the simulated GPUs has ended ({error.strerror}); start again") from error


@contextlib.contextmanager
def running_load(load: SimulatedLoad, state: Path) -> Iterator[LoadProcess]:
    """Start the program that puts a load on simulated GPUs; it ends with the block.

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
    with process:
        try:
            output = process.stdout
            line = "" if output is None else interruption.call_cancellable(output.readline, process.kill)
            if line.strip() != "ready":
                raise OperationError("the load of the simulated GPUs cannot be started; see the message above")
            yield LoadProcess(process)
        finally:
            process.kill()
