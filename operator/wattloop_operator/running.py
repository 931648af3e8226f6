"""A running operator: serves reports all the time, leads when it is its turn, and ends cleanly when told to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from wattloop import interruption
from wattloop.errors import OperationError
from wattloop_operator.cluster.connection import own_namespace
from wattloop_operator.factory import Factory
from wattloop_operator.http.server import HttpService

if TYPE_CHECKING:
    from wattloop_operator.cluster.election import Leadership
    from wattloop_operator.controller.controller import Controller

logger = logging.getLogger(__name__)

CHECK_SECONDS = 1.0


class LostLeadError(OperationError):
    """Another operator may lead by now: this one ends, and starts anew as one that waits."""


async def run_operator(factory: Factory) -> None:
    """Run until SIGTERM, SIGINT or SIGHUP.

    Raises:
        OperationError: The lead was lost, or a part of the operator has ended by itself.
    """
    settings = factory.settings
    namespace = settings.leader_election_namespace or own_namespace()
    controller: Controller | None = None
    with contextlib.ExitStack() as stack:
        reports = stack.enter_context(_serving(factory.report_service()))
        health = factory.health_service(lambda: controller, reports)
        if health is not None:
            stack.enter_context(_serving(health))
        # It is ready now: what the election needs comes after.
        from wattloop_operator.cluster.election import Leadership, LeaseLock  # noqa: PLC0415

        lock = LeaseLock(factory.transport, settings.leader_election_name, namespace, factory.identity)
        leadership = Leadership(lock, factory.election_times())
        metrics = factory.metrics_service(lambda: controller, leadership.holds)
        if metrics is not None:
            stack.enter_context(_serving(metrics))

        async def work() -> None:
            nonlocal controller
            logger.info("%s leads", factory.identity)
            controller = factory.controller(lambda: factory.addresses(reports.url), leadership.holds)
            controller.begin()
            while not (trouble := controller.trouble()):
                await asyncio.sleep(CHECK_SECONDS)
            raise OperationError(f"a part of the operator has ended: {trouble}")

        logger.info("%s waits for the Lease %s/%s", factory.identity, namespace, settings.leader_election_name)
        try:
            await _until_told_to_end(leadership, work)
        finally:
            if controller is not None:
                await asyncio.to_thread(controller.stop)
            await leadership.release()
            if controller is not None:
                await asyncio.to_thread(controller.await_end)


async def _until_told_to_end(leadership: Leadership, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    leading = asyncio.create_task(leadership.lead(work))
    ending = asyncio.create_task(told.wait())
    try:
        with interruption.wake_on_request(lambda: loop.call_soon_threadsafe(told.set)):
            await asyncio.wait({leading, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not told.is_set():
            await leading
            raise LostLeadError("the Lease could not be renewed in time; another operator may lead by now")
        logger.info("told to end")
    finally:
        for task in (leading, ending):
            task.cancel()
        await asyncio.gather(leading, ending, return_exceptions=True)


@contextlib.contextmanager
def _serving(service: HttpService) -> Iterator[HttpService]:
    service.start()
    try:
        yield service
    finally:
        service.stop()
