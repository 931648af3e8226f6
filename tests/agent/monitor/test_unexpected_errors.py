"""An unexpected error fails one iteration and is logged; accounting and owner checks continue."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any

import pytest

from support.agents.agent_fixture import DEADLINE_SECONDS
from wattloop_agent.monitor.energy import recorder as recorder_module
from wattloop_agent.monitor.energy.attribution import Assignment, AssignmentObservation
from wattloop_agent.monitor.energy.recorder import EnergyRecorder, LedgerWriter
from wattloop_agent.monitor.identity import ProcessAuthenticator
from wattloop_agent.monitor.leases import LeaseTracker
from wattloop_agent.monitor.power_controller_link import PowerControllerLink


async def run_until(running: Coroutine[Any, Any, None], done: asyncio.Event) -> None:
    task = asyncio.create_task(running)
    async with asyncio.timeout(DEADLINE_SECONDS):
        await done.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


class FailsOnce:
    """Assignments whose first observation fails."""

    def __init__(self) -> None:
        self.calls = 0
        self.recovered = asyncio.Event()

    async def observe(self, known: Iterable[Assignment]) -> AssignmentObservation:
        self.calls += 1
        if self.calls == 1:
            raise ZeroDivisionError("whatever")
        if self.calls == 3:
            self.recovered.set()
        return AssignmentObservation(float(self.calls), float(self.calls), (), is_complete=True)


def test_accounting_continues_after_an_unexpected_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder_module, "INTERVAL_SECONDS", 0.001)
    ledger_writer = LedgerWriter(tmp_path)

    async def run_recorder() -> tuple[str, bool]:
        assignments = FailsOnce()
        recorder = EnergyRecorder(ledger_writer, assignments)
        assert not recorder.are_assignments_known
        await run_until(recorder.run(), assignments.recovered)
        assert not recorder.are_assignments_known, "the ledger applies an observation with the samples after it"
        ledger_writer.add_samples([])
        return recorder.problem, recorder.are_assignments_known

    assert asyncio.run(run_recorder()) == ("", True), "the problem is cleared"
    ledger_writer.close()
    assert [record.message for record in caplog.records if record.exc_info] == [
        "unexpected failure of an observation of GPU assignments; retrying"
    ]


class InvalidFirstAnswer:
    """A power controller whose first answer is invalid."""

    start_seconds = 0.0

    def __init__(self) -> None:
        self.recovered = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.answering = asyncio.run_coroutine_threadsafe(self._answer(theirs), self._loop)
        return ours

    def handle_timeout(self) -> None:
        raise AssertionError("it answers")

    async def _answer(self, theirs: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=theirs)
        calls = 0
        # The end may cut a request off.
        with contextlib.suppress(ConnectionError):
            while await reader.readline():
                result = {"state": "ready", "warning": "", "bounds": {}, "leases": []} if calls else {}
                writer.write(json.dumps({"result": result}).encode() + b"\n")
                calls += 1
                if calls == 3:
                    self.recovered.set()
            writer.close()
            await writer.wait_closed()


def test_owner_checks_continue_after_an_unexpected_error(caplog: pytest.LogCaptureFixture) -> None:
    async def run_recorder() -> str:
        power_controller = InvalidFirstAnswer()
        link = PowerControllerLink(power_controller, DEADLINE_SECONDS)
        lease_tracker = LeaseTracker(
            link, PowerControllerLink(power_controller, DEADLINE_SECONDS), ProcessAuthenticator(), 0.001
        )
        lease_tracker.start()
        async with asyncio.timeout(DEADLINE_SECONDS):
            await power_controller.recovered.wait()
        await asyncio.to_thread(lease_tracker.stop)
        await asyncio.wrap_future(power_controller.answering)
        return lease_tracker.status.state

    assert asyncio.run(run_recorder()) == "ready"
    assert "unexpected failure of the lease check; the next one follows" in caplog.text
