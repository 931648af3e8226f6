"""Pushes the ledger to the operator, in a thread, so that a slow operator delays nothing else."""

import itertools
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit

from wattloop.errors import OperationError
from wattloop.threads import WatchedThread
from wattloop.wire.message_fields import MessageError
from wattloop.wire.node_energy import (
    MAX_NODE_ANSWER_BYTES,
    MAX_POD_GPU_USAGES,
    NodeAnswer,
    NodeGpu,
    NodeReport,
    PodGpuUsage,
    PodLimit,
)
from wattloop.wire.operator_api import REQUEST_ERRORS, OperatorApi, describe_error
from wattloop_agent.monitor.energy.ledger import Ledger
from wattloop_agent.monitor.gpu_sampler import GpuStatus
from wattloop_agent.monitor.ordered_limits import OrderedLimits
from wattloop_agent.monitor.policy_limits import BoundsFile

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 5.0
# An ended usage is pushed within this time, because the outcome of an attempt waits for it; so is the effect of an
# ordered limit, because its measurement begins with it.
END_SECONDS = 1.0
MAX_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class NodeReportApi:
    """The operator's API for node reports.

    Attributes:
        url: URL, http://… or https://…
        token_file: File of the agent's token.
        certificate_authority_file: Certificates that verify the operator; None for those of the system.
    """

    url: str
    token_file: Path
    certificate_authority_file: Path | None = None

    @property
    def verified(self) -> bool:
        """Whether the answers are the operator's: its certificate is verified at each connection."""
        return urlsplit(self.url).scheme == "https"

    def send(self, report: NodeReport) -> NodeAnswer:
        """Deliver a report.

        Raises:
            OperationError: The report was not delivered or not accepted, or the answer is invalid.
        """
        api = OperatorApi(self.url, str(self.token_file), str(self.certificate_authority_file or ""))
        path = f"/v1/nodes/{quote(report.node, safe='')}/energy"
        try:
            answer = api.send("POST", path, report.to_json(), TIMEOUT_SECONDS, MAX_NODE_ANSWER_BYTES)
            return NodeAnswer.from_json(answer)
        except HTTPError as error:
            raise OperationError(f"{self.url}: refused with {describe_error(error)}") from error
        except (MessageError, json.JSONDecodeError, RecursionError) as error:
            raise OperationError(f"{self.url}: invalid answer: {error}") from error
        except REQUEST_ERRORS as error:
            raise OperationError(f"{self.url}: {describe_error(error)}") from error


@dataclass(frozen=True)
class PushState:
    """State of the pushes.

    Attributes:
        delivered_seconds: Monotonic clock when the last complete push was accepted; None if none was.
        failures: Number of failed pushes since the agent started.
        problem: Why the last push failed; empty if it succeeded.
    """

    delivered_seconds: float | None = None
    failures: int = 0
    problem: str = ""


class Pusher:
    """Pushes the whole ledger to the operator at an interval.

    Args:
        api: The operator's API.
        node: Name of the Kubernetes node.
        ledger: The ledger to push.
        bounds: Stores the bounds that the operator answers with.
        interval_seconds: Interval of the pushes.
        limits: Returns the power limits of the GPUs, as far as they are known.
        orders: Carries out power limits that the operator orders for pods; None: they are ignored.
        are_assignments_known: Whether the ledger has every pod that holds a GPU now.
        clock: Monotonic clock.
        chance: Returns a random number from 0 to 1.

    Attributes:
        state: State of the pushes.
    """

    def __init__(
        self,
        api: NodeReportApi,
        node: str,
        ledger: Ledger,
        bounds: BoundsFile,
        interval_seconds: float,
        *,
        limits: Callable[[], Iterable[GpuStatus]] = tuple,
        orders: OrderedLimits | None = None,
        are_assignments_known: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._api = api
        self._node = node
        self._ledger = ledger
        self._bounds = bounds
        self._interval_seconds = interval_seconds
        self._limits = limits
        self._orders = orders
        self._are_assignments_known = are_assignments_known
        self._pushed_revision = 0
        self._ignored_orders = False
        self._clock = clock
        self._chance = chance
        self._sequence = itertools.count(1)
        self._consecutive_failures = 0
        self._pushed_ends: frozenset[tuple[str, str, str]] = frozenset()
        self._stopping = threading.Event()
        # A daemon thread: an operator that does not answer must not keep the agent from ending.
        self._thread = WatchedThread(self._run, "push")
        self.state = PushState()

    def start(self) -> None:
        """Push until stopped."""
        self._thread.start()

    def stop(self) -> None:
        """Stop without waiting for a push in progress; the next agent repeats what is lost."""
        self._thread.release()
        self._stopping.set()

    def push(self) -> float:
        """Push the ledger once and apply the answers; return the seconds until the next push."""
        problem = ""
        try:
            self._push_pages()
        except OperationError as error:
            problem = str(error)
        except Exception as error:
            # The next push may succeed; an agent that stops pushing would be worse.
            logger.exception("unexpected failure of a push; retrying")
            problem = f"{type(error).__name__}: {error}"
        self._set_state(problem)
        return wait_seconds(self._interval_seconds, self._consecutive_failures, self._chance())

    def _push_pages(self) -> None:
        # Asked first: what is known after the ledger was read may be missing in it.
        is_known = self._are_assignments_known()
        ledger, gpus, usages = self._read_ledger()
        gpus = with_limits(gpus, self._limits())
        active = {usage.pod_uid for usage in usages if not usage.ended}
        if self._orders is not None:
            self._pushed_revision = self._orders.revision
            self._orders.forget_all_but(active)
        sent = pages(usages)
        for page in sent:
            pods = active.intersection(usage.pod_uid for usage in page)
            states = () if self._orders is None else self._orders.states(pods)
            is_complete = is_known and len(sent) == 1
            report = NodeReport(self._node, ledger, next(self._sequence), gpus, page, states, is_complete)
            answer = self._api.send(report)
            self._apply([each for each in answer.limits if each.pod_uid in pods])
            # Only pods of this page: the operator can't have stored what was not sent.
            self._ledger.forget({each.pod_uid for each in page}.intersection(answer.acknowledged))
            if answer.bounds is not None:
                self._bounds.replace(answer.bounds)
        self._pushed_ends = _ended_keys(usages)

    def _apply(self, orders: Sequence[PodLimit]) -> None:
        """Carry out orders of the operator; ignore those of whoever else answers without TLS."""
        if self._orders is None or not orders:
            return
        if self._api.verified:
            self._orders.apply(orders)
        elif not self._ignored_orders:
            self._ignored_orders = True
            logger.warning("power limits of the operator are ignored: use an https:// URL for --push-url")

    def _read_ledger(self) -> tuple[str, tuple[NodeGpu, ...], tuple[PodGpuUsage, ...]]:
        """Return the content of the ledger with its id.

        With the id of another ledger, the same numbers would count twice.
        """
        while True:
            ledger, gpus, usages = self._ledger.id, self._ledger.gpus(), self._ledger.usages()
            if self._ledger.id == ledger:
                return ledger, gpus, usages

    def _set_state(self, problem: str) -> None:
        before = self.state
        if problem:
            self._consecutive_failures += 1
            self.state = PushState(before.delivered_seconds, before.failures + 1, problem)
        else:
            self._consecutive_failures = 0
            self.state = PushState(self._clock(), before.failures)
        if problem and not before.problem:
            extra = {"node": self._node, "problem": problem}
            logger.warning("push to the operator failed; energy is kept and pushed later", extra=extra)
        elif before.problem and not problem:
            logger.info("push to the operator succeeded again", extra={"node": self._node})

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wait(self.push())

    def _wait(self, seconds: float) -> None:
        until = self._clock() + seconds
        while (left := until - self._clock()) > 0 and not self._stopping.wait(min(left, END_SECONDS)):
            if self._consecutive_failures:
                continue
            has_new_state = self._orders is not None and self._orders.revision != self._pushed_revision
            if has_new_state or _ended_keys(self._ledger.usages()) - self._pushed_ends:
                return


def _ended_keys(usages: Iterable[PodGpuUsage]) -> frozenset[tuple[str, str, str]]:
    return frozenset(usage.key for usage in usages if usage.ended)


def with_limits(gpus: Iterable[NodeGpu], limits: Iterable[GpuStatus]) -> tuple[NodeGpu, ...]:
    """Return the GPUs with their power limits."""
    known = {each.uuid: each for each in limits}
    return tuple(
        replace(
            gpu,
            max_power_limit_watts=known[gpu.uuid].max_power_limit_watts or 0.0,
            enforced_power_limit_watts=known[gpu.uuid].enforced_power_limit_watts or 0.0,
        )
        if gpu.uuid in known
        else gpu
        for gpu in gpus
    )


def wait_seconds(interval_seconds: float, failures: int, chance: float) -> float:
    """Return the time to wait before the next push: exponential backoff with jitter.

    The jitter, by a random number from 0 to 1, spreads the agents that lost the operator at the same moment.

    Example:
        >>> [wait_seconds(5.0, failures, 0.5) for failures in range(5)]
        [5.0, 7.5, 15.0, 30.0, 45.0]
    """
    if not failures:
        return interval_seconds * (0.9 + 0.2 * chance)
    maximum = max(MAX_WAIT_SECONDS, interval_seconds)
    return min(interval_seconds * 2.0 ** min(failures, 30), maximum) * (0.5 + 0.5 * chance)


def pages(usages: Iterable[PodGpuUsage], limit: int = MAX_POD_GPU_USAGES) -> list[tuple[PodGpuUsage, ...]]:
    """Return the usages in pages of at most `limit`; one empty page if there are none.

    All usages of a pod are on one page, because the operator acknowledges a pod by a report in which all its usages
    have ended. A pod with more usages than a page holds is split, which does not occur in practice.

    Example:
        >>> [len(page) for page in pages([], limit=2)]
        [0]
    """
    by_pod: dict[str, list[PodGpuUsage]] = {}
    for usage in usages:
        by_pod.setdefault(usage.pod_uid, []).append(usage)
    filled: list[list[PodGpuUsage]] = [[]]
    for pod in by_pod.values():
        for start in range(0, len(pod), limit):
            part = pod[start : start + limit]
            if len(filled[-1]) + len(part) > limit:
                filled.append([])
            filled[-1] += part
    return [tuple(page) for page in filled]
