"""Holds the power limits that the operator orders for pods that cannot ask for them.

An order is handled as a request of the pod, so the operator can cause nothing that the pod could not have requested.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from wattloop.wire.node_energy import MAX_POD_LIMITS, PodLimit, PodLimitState, Range
from wattloop.wire.training_messages import MAX_REFUSAL_CHARACTERS
from wattloop_agent.monitor.identity import SocketCaller
from wattloop_agent.monitor.monitor_verbs import MonitorVerbs
from wattloop_agent.power_controller.lease_decisions import TOLERANCE_WATTS
from wattloop_agent.refusals import Reason, RequestError

if TYPE_CHECKING:
    from wattloop_agent.monitor.pods.pod_authenticator import PodAuthenticator

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _State:
    """What was done about an order.

    Attributes:
        allowed: The limits that the pod may request of all its GPUs; None: none.
        held_watts: The limit held for it; None: none.
        since_seconds: Since when, on the monotonic clock.
        refusal: Why the ordered limit is not held; empty if it is.
    """

    allowed: Range | None = None
    held_watts: float | None = None
    since_seconds: float = 0.0
    refusal: str = ""


class OrderedLimits:
    """Carries out the operator's orders, one at a time.

    Orders arrive in another thread than the event loop's, which alone makes requests.

    Attributes:
        revision: Rises with each change of a state, so that it is reported soon.
    """

    def __init__(
        self,
        pods: PodAuthenticator,
        requests: MonitorVerbs,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pods = pods
        self._requests = requests
        self._loop = loop
        self._clock = clock
        self._lock = threading.Lock()
        self._orders: dict[str, float | None] = {}
        self._states: dict[str, _State] = {}
        self._task: asyncio.Task[None] | None = None
        self.revision = 0

    def states(self, pod_uids: Collection[str]) -> tuple[PodLimitState, ...]:
        """The states of these pods; from any thread."""
        now = self._clock()
        with self._lock:
            known = [(uid, self._states[uid]) for uid in pod_uids if uid in self._states]
        return tuple(
            PodLimitState(
                uid,
                state.allowed,
                state.held_watts or 0.0,
                0.0 if state.held_watts is None else max(now - state.since_seconds, 0.0),
                state.refusal,
            )
            for uid, state in known[:MAX_POD_LIMITS]
        )

    def forget_all_but(self, pod_uids: Collection[str]) -> None:
        """Forget pods that have no GPU any more; their leases end with their processes. From any thread."""
        with self._lock:
            for by_uid in (self._states, self._orders):
                for uid in by_uid.keys() - set(pod_uids):
                    del by_uid[uid]

    def apply(self, orders: Iterable[PodLimit]) -> None:
        """Carry out orders soon; from any thread."""
        with self._lock:
            self._orders |= {order.pod_uid: order.watts for order in orders}
        # RuntimeError: the loop has ended, and every lease with it.
        try:
            self._loop.call_soon_threadsafe(self._start)
        except RuntimeError:
            logger.debug("the agent ends")

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self.carry_out())

    async def carry_out(self) -> None:
        """Carry out all orders that wait; on the event loop."""
        while True:
            with self._lock:
                orders, self._orders = self._orders, {}
            if not orders:
                return
            for pod_uid, watts in orders.items():
                try:
                    await self._carry_out(pod_uid, watts)
                except Exception:
                    # The next report repeats the order.
                    logger.exception("unexpected failure of an ordered power limit", extra={"pod": pod_uid})

    async def _carry_out(self, pod_uid: str, watts: float | None) -> None:
        before = self._states.get(pod_uid, _State())
        try:
            caller = await self._pods.caller(pod_uid)
        except RequestError as error:
            # The pod has just ended, or the kubelet does not answer: no word about the limit.
            logger.debug("an ordered power limit waits", extra={"pod": pod_uid, "error": error.message})
            return
        try:
            # A lease of a pod without processes would end at once. The operator repeats the order.
            if not caller.has_gpus or not await asyncio.to_thread(self._pods.alive, caller.owner):
                return
            state = await self._obeyed(caller, watts, before)
        except RequestError as refusal:
            state = _State(before.allowed, refusal=_printable(str(refusal)))
        with self._lock:
            self._states[pod_uid] = state
        if replace(state, since_seconds=0.0) != replace(before, since_seconds=0.0):
            self.revision += 1
            extra = {"pod": pod_uid, "ordered": watts, "held": state.held_watts, "refusal": state.refusal}
            logger.info("power limit ordered by the operator", extra=extra)

    async def _obeyed(self, caller: SocketCaller, watts: float | None, before: _State) -> _State:
        gpus = tuple(sorted((caller.gpus or frozenset()) | caller.shared))
        held = await self._held(caller, gpus)
        described = await self._requests.answer(caller, {"verb": "gpus"})
        allowed = _allowed(described)
        if watts is not None and held == watts:
            displaced = _displaced(described, watts)
            if displaced:
                # That is not overridden.
                return _State(allowed, refusal=displaced)
            # An earlier agent may have held it.
            since_seconds = self._clock() if before.held_watts is None else before.since_seconds
            return _State(allowed, held, since_seconds)
        if watts is None and allowed is None:
            # The request fails, and its error gives the reason.
            caller.require_own(gpus)
            watts = _highest(described)
        if watts is None:
            if held is not None:
                await self._requests.answer(caller, {"verb": "release", "gpus": list(gpus)})
            return _State(allowed)
        answers = await self._requests.answer(caller, {"verb": "hold_limit", "gpus": list(gpus), "watts": watts})
        return _State(allowed, float(min(each["held_watts"] for each in answers)), self._clock())

    async def _held(self, caller: SocketCaller, gpus: Sequence[str]) -> float | None:
        """The limit that the pod holds on all its GPUs; None: none, or several."""
        leases = await self._requests.answer(caller, {"verb": "list"})
        held = {
            lease["uuid"]: float(lease["held"])
            for lease in leases
            if lease["yours"] and lease["setting"] == "power_limit" and not lease["releasing"] and lease["held"]
        }
        limits = set(held.values())
        return limits.pop() if held.keys() == set(gpus) and len(limits) == 1 else None


def _allowed(described: Sequence[Mapping[str, Any]]) -> Range | None:
    """The limits that may be requested of all these GPUs."""
    known = [(each["power_limits"] or {}).get("allowed_watts") for each in described]
    ranges = [each for each in known if each is not None]
    if not ranges or len(ranges) < len(known):
        return None
    lowest, highest = max(low for low, _ in ranges), min(high for _, high in ranges)
    return (lowest, highest) if lowest <= highest else None


def _displaced(described: Sequence[Mapping[str, Any]], watts: float) -> str:
    """Why a limit that is held is not in force on a GPU; empty if it is."""
    for each in described:
        current = (each["power_limits"] or {}).get("current_watts")
        if current is None:
            return f"the power limit of GPU {each['uuid']} cannot be read, as if it fell off the bus"
        if abs(current - watts) > TOLERANCE_WATTS:
            return (
                f"GPU {each['uuid']} has a limit of {current:g} W instead of {watts:g} W: it was reset, or another "
                "program has set it"
            )
    return ""


def _highest(described: Sequence[Mapping[str, Any]]) -> float:
    limits = [each["power_limits"]["maximum_watts"] for each in described if each["power_limits"]]
    if not limits or len(limits) < len(described):
        raise RequestError(Reason.NOT_SUPPORTED, "a GPU of the pod has no power limit")
    return float(min(limits))


def _printable(text: str) -> str:
    """The text in the characters and length that a report allows."""
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in text)[:MAX_REFUSAL_CHARACTERS]
