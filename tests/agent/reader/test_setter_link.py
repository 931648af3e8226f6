"""How long the reader waits for its setter: for one that starts, and for one that runs."""

from __future__ import annotations

import asyncio
import socket

import pytest
from bench import DEADLINE_SECONDS

from wattloop_agent.reader.setter_link import SetterLink
from wattloop_agent.refusal import Reason, Refused

TIMEOUT_SECONDS = 0.05


class SlowSetter:
    """Each of its connections is to a setter that answers once it is told to, well after the timeout.

    Args:
        start_seconds: How long it may take to start.
    """

    def __init__(self, start_seconds: float) -> None:
        self.start_seconds = start_seconds
        self.opened = 0
        self.ends: list[socket.socket] = []

    def open(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        theirs.setblocking(False)
        self.opened += 1
        self.ends.append(theirs)
        return ours

    def hangs(self) -> None:
        """The next connection is to another one."""

    async def answer(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_recv(self.ends[-1], 4096)
        await loop.sock_sendall(self.ends[-1], b'{"result": []}\n')

    def close(self) -> None:
        for end in self.ends:
            end.close()


async def answered_late(setter: SlowSetter, link: SetterLink) -> object:
    asking = asyncio.create_task(link.ask({"verb": "list"}))
    done, _ = await asyncio.wait({asking}, timeout=4 * TIMEOUT_SECONDS)
    assert not done, "it is waited for"
    await setter.answer()
    return await asking


def test_a_setter_that_takes_its_time_to_start_is_waited_for_and_one_that_runs_is_not() -> None:
    async def both() -> None:
        setter = SlowSetter(DEADLINE_SECONDS)
        link = SetterLink(setter, TIMEOUT_SECONDS)
        try:
            assert await answered_late(setter, link) == []
            with pytest.raises(Refused) as hanging:
                await link.ask({"verb": "list"})
            assert hanging.value.reason is Reason.UNAVAILABLE
            assert setter.opened == 1
            assert await answered_late(setter, link) == [], "the next one starts"
            assert setter.opened == 2
        finally:
            link.close()
            setter.close()

    asyncio.run(both())


def test_one_that_was_too_slow_to_start_is_followed_by_one_that_has_longer() -> None:
    async def twice() -> None:
        setter = SlowSetter(4 * TIMEOUT_SECONDS)
        link = SetterLink(setter, TIMEOUT_SECONDS)
        try:
            for attempt in range(1, 4):
                with pytest.raises(Refused):
                    await link.ask({"verb": "list"})
                assert setter.opened == attempt
                assert link._time.start_seconds == 4 * TIMEOUT_SECONDS * 2**attempt
            assert await answered_late(setter, link) == []
            assert link._time.start_seconds == 4 * TIMEOUT_SECONDS
        finally:
            link.close()
            setter.close()

    asyncio.run(twice())


def test_one_that_somebody_else_started_has_no_time_to_start() -> None:
    async def once() -> None:
        setter = SlowSetter(0.0)
        link = SetterLink(setter, TIMEOUT_SECONDS)
        try:
            with pytest.raises(Refused, match=r"did not answer in 0.05 s"):
                await link.ask({"verb": "list"})
        finally:
            link.close()
            setter.close()

    asyncio.run(once())
