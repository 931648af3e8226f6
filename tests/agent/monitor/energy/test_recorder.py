"""Counters are read when a GPU changes hands, not each time that somebody looks at who has which."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from support.agents.agent_fixture import DEADLINE_SECONDS
from wattloop_agent.monitor.energy import recorder
from wattloop_agent.monitor.energy.attribution import Assignment, Observation
from wattloop_agent.monitor.energy.recorder import EnergyRecorder, LedgerWriter
from wattloop_agent.monitor.energy.samples import GpuSample

POD = Assignment("uid", "default", "pod", "main", "GPU-1")


class Told:
    """What the kubelet says, look by look; before each the ledger sees the GPU once more."""

    def __init__(self, ledger_writer: LedgerWriter, looks: list[tuple[Assignment, ...]]) -> None:
        self._writer = ledger_writer
        self._looks = looks
        self.clock = 0.0
        self.done = asyncio.Event()

    async def observe(self, known: Iterable[Assignment]) -> Observation:
        self.clock += 1.0
        self._writer.add_samples([GpuSample("GPU-1", "H200", self.clock, self.clock, self.clock, 0, 90.0)])
        self.clock += 1.0
        if len(self._looks) == 1:
            self.done.set()
        return Observation(self.clock, self.clock, self._looks.pop(0) if self._looks else ())


def test_counters_are_read_when_a_pod_gets_a_gpu_and_when_it_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "INTERVAL_SECONDS", 0.0)

    async def changes() -> list[int]:
        ledger_writer = LedgerWriter(tmp_path)
        told = Told(ledger_writer, [(), (POD,), (POD,), (POD,), (), ()])
        read: list[int] = []

        def changed() -> None:
            read.append(round(told.clock / 2))

        keeper = EnergyRecorder(ledger_writer, told, changed)
        task = asyncio.create_task(keeper.run())
        async with asyncio.timeout(DEADLINE_SECONDS):
            await told.done.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert keeper.problem == ""
        return read

    # Once more each, since the ledger takes note of a look with the samples after it.
    assert asyncio.run(changes()) == [2, 3, 5, 6]
