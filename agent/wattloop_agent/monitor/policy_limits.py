"""The policies of this node: what they allow, the requests that they admit, the leases that violate them.

A policy applies to the products that it names, whichever pod uses them. Its namespaces say whose pods may set limits,
its ranges which limits. Where several apply to a GPU, a request must be within all of them.

Leases that violate a policy that was tightened later are reported, not changed: another limit during a
training would distort what its job learns, and the limit that a GPU returns to may violate the policy
even more than the held one. docs/decisions/agent.md has the reasons.
"""

import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattloop.wire.message_fields import MessageError
from wattloop.wire.node_energy import MAX_CLOCK_MEGAHERTZ, MAX_NODE_ANSWER_BYTES, GpuBounds, NodeAnswer, Range
from wattloop.wire.training_messages import MAX_LIMIT_WATTS
from wattloop_agent import refusals
from wattloop_agent.durable_file import read_at_most, write_durably
from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.monitor.gpu_meter import Meter
from wattloop_agent.monitor.identity import SocketCaller
from wattloop_agent.refusals import RequestError

logger = logging.getLogger(__name__)

NAME = "bounds.json"
# Number of cached (product, namespace) pairs; a node has few products and, at a time, few namespaces.
CACHE_SIZE = 256


@dataclass(frozen=True)
class Limits:
    """The policies of one product's GPUs for the pods of one namespace.

    Attributes:
        bounds: All that apply.
        closed_by: Those that do not admit the namespace.
    """

    bounds: tuple[GpuBounds, ...] = ()
    closed_by: tuple[GpuBounds, ...] = ()

    def range(self, setting: GpuSetting) -> Range:
        """The range that all of them allow, both ends included.

        No value is allowed if the minimum is above the maximum.
        """
        ranges = [bounds for each in self.bounds if (bounds := _range(each, setting)) is not None]
        return max((low for low, _ in ranges), default=0.0), min((high for _, high in ranges), default=math.inf)

    def narrowed(self, setting: GpuSetting, device: Range) -> Range | None:
        """The allowed part of the range that a device accepts; None: nothing."""
        minimum, maximum = self.range(setting)
        minimum, maximum = max(minimum, device[0]), min(maximum, device[1])
        return None if self.closed_by or minimum > maximum else (minimum, maximum)

    def violation(self, setting: GpuSetting, value: float) -> str | None:
        """The policies that a value violates, with their ranges, in words; None: none."""
        violated = [
            f"GPUPowerPolicy {each.policy} allows {in_words(setting, bounds)}"
            for each in self.bounds
            if (bounds := _range(each, setting)) is not None and not bounds[0] <= value <= bounds[1]
        ]
        return " and ".join(violated) or None


class PolicyLimits:
    """The policies of this node, by product and namespace.

    Args:
        bounds: As received from the operator.
    """

    def __init__(self, bounds: Iterable[GpuBounds] = ()) -> None:
        self.bounds = tuple(bounds)
        self._cache: dict[tuple[str, str | None], Limits] = {}

    def of(self, product: str, namespace: str | None) -> Limits:
        """The limits of a GPU of this product for a pod of this namespace (None: no pod)."""
        key = (product, namespace)
        limits = self._cache.get(key)
        if limits is None:
            applying = tuple(each for each in self.bounds if each.products is None or product in each.products)
            limits = Limits(
                applying,
                tuple(each for each in applying if each.namespaces is not None and namespace not in each.namespaces),
            )
            if len(self._cache) >= CACHE_SIZE:
                self._cache.clear()
            self._cache[key] = limits
        return limits


def in_words(setting: GpuSetting, bounds: Range) -> str:
    """A range of a setting in words.

    Example:
        >>> in_words(GpuSetting.POWER_LIMIT, (100, 300)), in_words(GpuSetting.POWER_LIMIT, (0, 300))
        ('100 to 300 watts', 'at most 300 watts')
    """
    minimum, maximum = bounds
    if minimum <= 0:
        return f"at most {maximum:g} {setting.unit}"
    if maximum >= (MAX_LIMIT_WATTS if setting is GpuSetting.POWER_LIMIT else MAX_CLOCK_MEGAHERTZ):
        return f"at least {minimum:g} {setting.unit}"
    return f"{minimum:g} to {maximum:g} {setting.unit}"


def _range(bounds: GpuBounds, setting: GpuSetting) -> Range | None:
    found: Range | None = getattr(bounds, f"{setting}_{setting.unit}")
    return found


class BoundsFile:
    """The policies of this node, on disk, so that they survive a restart without the operator.

    The file has the form of the operator's answer. An unreadable one closes the node: the administrator's limits are
    unknown, and a damaged disk must not lift them. The next `replace` opens it. Without a file, the node has not
    received policies yet, and only the devices' and the power controller's own ranges apply.

    Args:
        folder: The monitor's state folder.

    Attributes:
        problem: Why no request is admitted, or why the policies are not durable; empty: none.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._limits: PolicyLimits | None = PolicyLimits()
        self._durable: tuple[GpuBounds, ...] | None = None
        self.problem = ""
        self._read()

    def limits(self) -> PolicyLimits:
        """The policies in force.

        Raises:
            RequestError: `Reason.UNAVAILABLE`: they are unknown.
        """
        if self._limits is None:
            raise refusals.policies_unknown(self.problem)
        return self._limits

    def replace(self, bounds: Sequence[GpuBounds]) -> None:
        """Apply these policies and store them; if the disk fails they apply all the same."""
        received = tuple(bounds)
        if self._limits is None or self._limits.bounds != received:
            self._limits = PolicyLimits(received)
            logger.info("policies applied", extra={"policies": [each.policy for each in received]})
        if received != self._durable:
            self._write(received)

    def _read(self) -> None:
        try:
            data = read_at_most(self._path, MAX_NODE_ANSWER_BYTES)
            bounds = _decoded(data)
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, ValueError) as error:
            self._limits = None
            self.problem = f"{self._path}: {error}"
            logger.error("policies unknown; every request for a limit is refused", extra={"error": self.problem})  # noqa: TRY400
            return
        self._limits, self._durable = PolicyLimits(bounds), bounds

    def _write(self, bounds: tuple[GpuBounds, ...]) -> None:
        self._durable = None
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = json.dumps(NodeAnswer(bounds=bounds).to_json(), allow_nan=False, indent=1).encode()
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                write_durably(self._path, folder, content)
            finally:
                os.close(folder)
        except OSError as error:
            problem = f"policies apply, but are not stored for a restart: {error}"
            if problem != self.problem:
                logger.error("policies not written, retrying", extra={"error": problem})  # noqa: TRY400
            self.problem = problem
            return
        self._durable, self.problem = bounds, ""


def _decoded(data: bytes) -> tuple[GpuBounds, ...]:
    if len(data) > MAX_NODE_ANSWER_BYTES:
        raise ValueError(f"more than {MAX_NODE_ANSWER_BYTES} bytes")
    try:
        answer = NodeAnswer.from_json(json.loads(data))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if answer.bounds is None:
        raise MessageError('found no "bounds", expected a list')
    return answer.bounds


def policy_violations(
    leases: Iterable[Mapping[str, Any]], limits: PolicyLimits, products: Mapping[str, str]
) -> dict[tuple[str, str], str]:
    """By (GPU uuid, setting), the held value and the policies that it violates, in words.

    Args:
        leases: As returned by the power controller's ``list`` verb.
        limits: The policies in force.
        products: The GPUs' models, by uuid; policies of a product do not apply to a GPU of unknown model.
    """
    found = {}
    for lease in leases:
        setting, held = GpuSetting(lease["setting"]), lease["held"]
        # Ranges apply to every pod; namespaces only say who may set them.
        violation = None if held is None else limits.of(products.get(lease["uuid"], ""), None).violation(setting, held)
        if violation is not None:
            found[lease["uuid"], lease["setting"]] = f"{held:g} {setting.unit}: {violation}"
    return found


class PolicyViolations:
    """Keeps the current violations, and logs each once.

    Args:
        limits: Gives the policies in force; it raises `RequestError` where they are unknown.
        products: Gives the GPUs' models by uuid, as far as they are known.

    Attributes:
        found: As returned by `policy_violations`.
    """

    def __init__(self, limits: Callable[[], PolicyLimits], products: Callable[[], Mapping[str, str]]) -> None:
        self._limits = limits
        self._products = products
        self.found: Mapping[tuple[str, str], str] = {}

    def update(self, leases: Iterable[Mapping[str, Any]]) -> None:
        """Check the leases that the power controller holds now."""
        held = list(leases)
        try:
            found = policy_violations(held, self._limits(), self._products())
        except RequestError:
            # The policies are unknown, which `BoundsFile` reports.
            return
        owners = {(lease["uuid"], lease["setting"]): lease["owner"] for lease in held}
        for key, violation in found.items():
            if self.found.get(key) != violation:
                extra = {"gpu": key[0], "setting": key[1], "owner": owners[key], "violation": violation}
                logger.warning("held outside of a policy until its owner requests again or is gone", extra=extra)
        self.found = found


class PolicyAdmission:
    """Admits or refuses requests.

    Args:
        gpus: The GPUs' models and ranges.
        limits: Gives the policies in force; it raises `RequestError` where they are unknown.
    """

    def __init__(self, gpus: Meter, limits: Callable[[], PolicyLimits]) -> None:
        self._gpus = gpus
        self._limits = limits

    async def admit(
        self, caller: SocketCaller, gpus: Sequence[str], setting: GpuSetting, value: float
    ) -> dict[str, float]:
        """Refuse a request that a policy does not allow.

        Returns:
            The policies' ``minimum`` and ``maximum`` where they bound the setting: the power
            controller stays within them when it rounds a clock to a step.

        Raises:
            RequestError: The caller may not request this value for one of the GPUs, or the policies are unknown.
        """
        bounds: dict[str, float] = {}
        for gpu, limits in [(gpu, await self._limits_of(caller, gpu)) for gpu in gpus]:
            if limits.closed_by:
                policy, admitted = limits.closed_by[0].policy, limits.closed_by[0].namespaces or ()
                raise refusals.namespace_not_admitted(gpu, policy, admitted, caller.namespace)
            violation = limits.violation(setting, value)
            if violation is not None:
                raise refusals.out_of_range(gpu, setting, value, [violation, await self._accepted(gpu, setting)])
            minimum, maximum = limits.range(setting)
            if minimum > 0:
                bounds["minimum"] = max(minimum, bounds.get("minimum", minimum))
            if maximum < math.inf:
                bounds["maximum"] = min(maximum, bounds.get("maximum", maximum))
        return bounds

    async def allowed(self, caller: SocketCaller, gpu: str, setting: GpuSetting, accepted: Range) -> Range | None:
        """The range that a caller may request of a GPU that accepts `accepted`; None: nothing."""
        try:
            limits = await self._limits_of(caller, gpu)
        except RequestError:
            return None
        return limits.narrowed(setting, accepted)

    async def _limits_of(self, caller: SocketCaller, gpu: str) -> Limits:
        limits = self._limits()
        return limits.of(await self._gpus.product(gpu), caller.namespace) if limits.bounds else Limits()

    async def _accepted(self, gpu: str, setting: GpuSetting) -> str:
        try:
            return f"the device accepts {in_words(setting, await self._gpus.accepted(gpu, setting))}"
        except RequestError:
            # The policy decides; the device's range only completes the message.
            return "the device does not report what it accepts"
