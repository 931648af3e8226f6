"""What the ranks of a training exchange for its probes: whether to probe now, and the readings of their GPUs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from wattloop.power.shared_totals import SharedReading, TotalsExchange
from wattloop.wire.torch_group import LostStoreError, TorchGroup

if TYPE_CHECKING:
    from wattloop.run.training_run import Run

# Rank 0 may evaluate alone, as for a verdict.
VALIDATION_TIMEOUT_SECONDS = 1800.0
NAME = "wattloop/probe"


class ProbeRanks:
    """The ranks of a run that probes; a single process too.

    Args:
        synchronize: Waits for the work that is queued on the GPUs, before each reading.

    Attributes:
        problem: Why the ranks cannot probe, or can no longer; empty if they can.
    """

    def __init__(self, run: Run, group: TorchGroup | None, synchronize: Callable[[], None]) -> None:
        self.problem = ""
        self._run = run
        self._group = group
        self._synchronize = synchronize
        self._validations = 0
        ranks, name = run.environment.ranks, ""
        if group is None and ranks > 1:
            self._end(f"this is one of {ranks} processes without a process group of PyTorch")
        elif group is not None:
            try:
                name = f"{NAME}/{group.next_number(NAME)}"
            except LostStoreError as error:
                self._end(f"the store of the process group is lost: {error}")
        self._name = name
        self._exchange = TotalsExchange(group, name, run.gpus.totals())

    @property
    def is_one(self) -> bool:
        """Whether there is no other rank."""
        return self._group is None

    def agreed(self, threshold: float | None) -> float | None:
        """The threshold that rank 0 has crossed, for all ranks; None if it has crossed none."""
        self._validations += 1
        if self._group is None or self.problem:
            return None if self.problem else threshold
        name = f"{self._name}/validation/{self._validations}"
        if self._group.rank == 0:
            return threshold if self._group.publish(name, json.dumps(threshold)) else None
        try:
            text = self._group.awaited_value(name, VALIDATION_TIMEOUT_SECONDS)
        except LostStoreError as error:
            self._end(f"the store of the process group is lost: {error}")
            return None
        found = json.loads(text or "null")
        return None if found is None else float(found)

    def read(
        self, moment: str, limits: tuple[float, ...], *, interrupted: bool = False, note: str = ""
    ) -> SharedReading | None:
        """Energy and time of all ranks now; None if they cannot probe together, which ends all probes."""
        if self.problem:
            return None
        self._synchronize()
        gpus = self._run.gpus
        shared = self._exchange.exchange(
            gpus.totals(), gpus.count, limits, interrupted=interrupted, moment=moment, uuids=gpus.uuids, note=note
        )
        if shared is None:
            self._end("the ranks cannot probe together; a warning above says why")
        return shared

    def _end(self, problem: str) -> None:
        self.problem = problem
