"""How long the monitor waits for a starting and for a running power controller."""

import asyncio
import socket

import pytest

from support.agents.agent_fixture import DEADLINE_SECONDS
from wattloop_agent.monitor.power_controller_link import PowerControllerLink
from wattloop_agent.refusals import Reason, RequestError

TIMEOUT_SECONDS = 0.05


class SlowPowerController:
    """Each connection is to a power controller that answers on request, well after the timeout.

    Args:
        start_seconds: How long it may take to start.
    """

    def __init__(self, start_seconds: float) -> None:
        self.start_seconds = start_seconds
        self.opened = 0
        self.ends: list[socket.socket] = []

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        theirs.setblocking(False)
        self.opened += 1
        self.ends.append(theirs)
        return ours

    def handle_timeout(self) -> None:
        """The next connection is to another one."""

    async def answer(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_recv(self.ends[-1], 4096)
        await loop.sock_sendall(self.ends[-1], b'{"result": []}\n')

    def close(self) -> None:
        for end in self.ends:
            end.close()


async def answered_late(power_controller: SlowPowerController, link: PowerControllerLink) -> object:
    asking = asyncio.create_task(link.request({"verb": "list"}))
    done, _ = await asyncio.wait({asking}, timeout=4 * TIMEOUT_SECONDS)
    assert not done, "it is waited for"
    await power_controller.answer()
    return await asking


def test_a_starting_power_controller_gets_more_time_than_a_running_one() -> None:
    async def both() -> None:
        power_controller = SlowPowerController(DEADLINE_SECONDS)
        link = PowerControllerLink(power_controller, TIMEOUT_SECONDS)
        try:
            assert await answered_late(power_controller, link) == []
            with pytest.raises(RequestError) as hanging:
                await link.request({"verb": "list"})
            assert hanging.value.reason is Reason.UNAVAILABLE
            assert power_controller.opened == 1
            assert await answered_late(power_controller, link) == [], "the next one starts"
            assert power_controller.opened == 2
        finally:
            link.close()
            power_controller.close()

    asyncio.run(both())


def test_each_start_after_a_slow_one_gets_more_time() -> None:
    async def twice() -> None:
        power_controller = SlowPowerController(4 * TIMEOUT_SECONDS)
        link = PowerControllerLink(power_controller, TIMEOUT_SECONDS)
        try:
            for attempt in range(1, 4):
                with pytest.raises(RequestError):
                    await link.request({"verb": "list"})
                assert power_controller.opened == attempt
                assert link.start_seconds == 4 * TIMEOUT_SECONDS * 2**attempt
            assert await answered_late(power_controller, link) == []
            assert link.start_seconds == 4 * TIMEOUT_SECONDS
        finally:
            link.close()
            power_controller.close()

    asyncio.run(twice())


def test_a_power_controller_behind_a_socket_gets_no_start_time() -> None:
    async def once() -> None:
        power_controller = SlowPowerController(0.0)
        link = PowerControllerLink(power_controller, TIMEOUT_SECONDS)
        try:
            with pytest.raises(RequestError, match=r"no answer in 0.05 s"):
                await link.request({"verb": "list"})
        finally:
            link.close()
            power_controller.close()

    asyncio.run(once())
