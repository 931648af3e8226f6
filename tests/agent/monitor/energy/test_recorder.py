"""Counters are read when assignments change, not at each observation."""

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from support.agents.agent_fixture import DEADLINE_SECONDS
from wattloop.energy.gpu_reading import GpuReading
from wattloop_agent.monitor.energy import recorder
from wattloop_agent.monitor.energy.attribution import Assignment, AssignmentObservation
from wattloop_agent.monitor.energy.recorder import EnergyRecorder, LedgerWriter

POD = Assignment("uid", "default", "pod", "main", "GPU-1")


class ScriptedAssignments:
    """Returns observations in order; adds a sample of the GPU to the ledger before each."""

    def __init__(self, ledger_writer: LedgerWriter, observations: list[tuple[Assignment, ...]]) -> None:
        self._writer = ledger_writer
        self._observations = observations
        self.clock = 0.0
        self.done = asyncio.Event()

    async def observe(self, known: Iterable[Assignment]) -> AssignmentObservation:
        self.clock += 1.0
        self._writer.add_samples([GpuReading("GPU-1", self.clock, self.clock, 0, None, 90.0, self.clock, "H200")])
        self.clock += 1.0
        if len(self._observations) == 1:
            self.done.set()
        return AssignmentObservation(self.clock, self.clock, self._observations.pop(0) if self._observations else ())


def test_counters_are_read_when_an_assignment_starts_and_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "INTERVAL_SECONDS", 0.0)

    async def changes() -> list[int]:
        ledger_writer = LedgerWriter(tmp_path)
        assignments = ScriptedAssignments(ledger_writer, [(), (POD,), (POD,), (POD,), (), ()])
        read: list[int] = []

        def changed() -> None:
            read.append(round(assignments.clock / 2))

        energy_recorder = EnergyRecorder(ledger_writer, assignments, changed)
        task = asyncio.create_task(energy_recorder.run())
        async with asyncio.timeout(DEADLINE_SECONDS):
            await assignments.done.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert energy_recorder.problem == ""
        return read

    # Twice for each change, because the ledger applies an observation with the samples after it.
    assert asyncio.run(changes()) == [2, 3, 5, 6]
