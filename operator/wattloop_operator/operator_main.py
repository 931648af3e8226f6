"""Runs an operator: it serves reports all the time, waits for the lead, and stops cleanly on a signal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from wattloop import interruption, threads
from wattloop.errors import OperationError
from wattloop_operator.cluster.api_server import own_namespace
from wattloop_operator.factory import Factory

if TYPE_CHECKING:
    from wattloop_operator.cluster.election import Leadership

logger = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 1.0


async def run_operator(factory: Factory) -> None:
    """Run until SIGTERM, SIGINT or SIGHUP.

    Raises:
        OperationError: Another operator leads, or a part of this one has ended.
    """
    settings = factory.settings
    namespace = settings.leader_election_namespace or own_namespace()
    with contextlib.ExitStack() as stack:
        stack.enter_context(factory.database)
        reports = stack.enter_context(factory.report_service())
        health = factory.health_service(reports)
        if health is not None:
            stack.enter_context(health)
        # The operator is ready; the election's imports need not delay that.
        from wattloop_operator.cluster.election import ElectionTimes, Leadership, LeaseLock  # noqa: PLC0415

        times = ElectionTimes(settings.leader_lease_seconds)
        lock = LeaseLock(
            factory.transport,
            settings.leader_election_name,
            namespace,
            factory.identity,
            request_seconds=times.request_seconds,
        )
        leadership = Leadership(lock, times)
        factory.leader.stand_for_election(leadership.silence)
        metrics = factory.metrics_service(leadership.holds)
        if metrics is not None:
            stack.enter_context(metrics)

        async def work() -> None:
            logger.info("%s leads", factory.identity)
            controller = factory.controller(lambda: factory.addresses(reports.url), leadership.holds)
            controller.start()
            while not (problem := controller.problem()):
                await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            raise OperationError(problem)

        logger.info("%s waits for the Lease %s/%s", factory.identity, namespace, settings.leader_election_name)
        try:
            await _run_until_signal(leadership, work)
        finally:
            controller = factory.leader.controller
            if controller is not None:
                await asyncio.to_thread(controller.stop)
            await leadership.release()
            if controller is not None:
                await asyncio.to_thread(controller.join)


async def _run_until_signal(leadership: Leadership, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()
    leading = asyncio.create_task(leadership.lead(work))
    ending = asyncio.create_task(signalled.wait())
    watching = asyncio.create_task(_until_a_part_ends())
    try:
        with interruption.wake_on_request(lambda: loop.call_soon_threadsafe(signalled.set)):
            await asyncio.wait({leading, ending, watching}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        if signalled.is_set():
            logger.info("stopping: a signal was received")
        else:
            await leading
    finally:
        for task in (leading, ending, watching):
            task.cancel()
        await asyncio.gather(leading, ending, watching, return_exceptions=True)


async def _until_a_part_ends() -> None:
    """Wait until a watched thread has ended.

    Raises:
        OperationError: One has; the process ends, and another one is started.
    """
    while not (problem := threads.problem()):
        await asyncio.sleep(CHECK_INTERVAL_SECONDS)
    raise OperationError(f"a part of the operator has ended: {problem}")
