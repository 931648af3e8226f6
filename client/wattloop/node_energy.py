"""Wire forms between a node's agent and the operator: what each pod has used of each GPU, and what the agent may do.

Every report is cumulative, so that a lost or repeated one changes nothing and a late one brings everything up to date.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from wattloop.message_fields import Fields, MessageError, shown
from wattloop.messages import (
    MAX_ENERGY_MILLIJOULES,
    MAX_GPUS,
    MAX_LIMIT_WATTS,
    MAX_PRODUCT_CHARACTERS,
    MAX_TIME_SECONDS,
    MAX_UUID_CHARACTERS,
)

MAX_NODE_REPORT_BYTES = 1024 * 1024
MAX_NODE_ANSWER_BYTES = 4 * 1024 * 1024
# A report with this many of the longest entries has fewer bytes than the largest; an agent with more sends several.
MAX_POD_GPU_USAGES = 1024
MAX_ACKNOWLEDGED = MAX_POD_GPU_USAGES
MAX_BOUNDS = 256
MAX_NAMESPACES = 256
MAX_PRODUCTS = 32
MAX_NAME_CHARACTERS = 253
MAX_LABEL_CHARACTERS = 63
MAX_CLOCK_MEGAHERTZ = 20_000.0
COUNTER, INTEGRATED = "counter", "integrated"
SOURCES = (COUNTER, INTEGRATED)

Entry = TypeVar("Entry")
Range = tuple[float, float]


@dataclass(frozen=True)
class NodeGpu:
    """The energy of one GPU, whoever used it.

    Attributes:
        uuid: The GPU.
        product: Its model, as NVML gives it.
        energy_millijoules: Cumulative since the ledger began.
        uncertainty_millijoules: How far that may be off.
        time_seconds: The agent's clock at that reading; on simulated GPUs this is simulated time.
        source: ``counter``: the GPU's own; ``integrated``: power summed up over time.
    """

    uuid: str
    product: str
    energy_millijoules: int
    uncertainty_millijoules: int
    time_seconds: float
    source: str


@dataclass(frozen=True)
class PodGpuUsage:
    """What one container of a pod has used of one GPU; one entry a (pod uid, container, GPU).

    Attributes:
        pod_uid: The pod.
        namespace: Its namespace.
        pod: Its name.
        container: The container that was given the GPU.
        gpu: The GPU's uuid; of a MIG device or a replica, the uuid of the GPU that it is a part of.
        shared: Whether others could use the GPU too, so that its energy is not this pod's alone.
        energy_millijoules: Cumulative since the pod was given the GPU.
        uncertainty_millijoules: How far that may be off.
        start_time_seconds: The agent's clock when the pod was given the GPU.
        time_seconds: The agent's clock at the newest reading, or when the pod gave the GPU back.
        ended: Whether the pod has given the GPU back: nothing will be added.
    """

    pod_uid: str
    namespace: str
    pod: str
    container: str
    gpu: str
    shared: bool
    energy_millijoules: int
    uncertainty_millijoules: int
    start_time_seconds: float
    time_seconds: float
    ended: bool

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from all others of its ledger: pod uid, container, GPU."""
        return self.pod_uid, self.container, self.gpu


@dataclass(frozen=True)
class NodeReport:
    """What an agent says of its node.

    Attributes:
        node: The Kubernetes node.
        ledger: The ledger that the numbers are of: under another one they start anew, and add up.
        sequence: Rises with each report of an agent.
        gpus: The node's GPUs.
        usages: What pods use and have used; the ended ones until they are acknowledged. An agent with more than a
            report can carry says some now and some next time: what is not in a report has not changed by that.
    """

    node: str
    ledger: str
    sequence: int
    gpus: tuple[NodeGpu, ...] = ()
    usages: tuple[PodGpuUsage, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The report as JSON types."""
        return asdict(self)

    @staticmethod
    def from_json(body: object) -> NodeReport:
        """Check and read a report.

        Raises:
            MessageError: A field is missing, unknown, of the wrong type, not finite, negative or out of bounds.

        Example:
            >>> NodeReport.from_json({"node": "n1", "ledger": "3f", "sequence": -1})
            Traceback (most recent call last):
            wattloop.message_fields.MessageError: sequence: found -1, expected a whole number from 0 to \
9223372036854775807
        """
        read = Fields.of(body, "", NodeReport)
        report = NodeReport(
            node=read.text("node", MAX_NAME_CHARACTERS),
            ledger=read.text("ledger", MAX_LABEL_CHARACTERS),
            sequence=read.integer("sequence"),
            gpus=_entries(read, "gpus", MAX_GPUS, _gpu),
            usages=_entries(read, "usages", MAX_POD_GPU_USAGES, _usage),
        )
        _once("gpus", "GPU", [gpu.uuid for gpu in report.gpus])
        _once("usages", "pod uid, container and GPU", [usage.key for usage in report.usages])
        return report


@dataclass(frozen=True)
class GpuBounds:
    """The guard rails of one GPUPowerPolicy that holds on the node.

    Where several hold for a GPU, a request must be within all of them. A range's open end is 0, or the largest value
    that any GPU can have (`MAX_LIMIT_WATTS`, `MAX_CLOCK_MEGAHERTZ`).

    Attributes:
        policy: Its name.
        products: Product names of the GPUs that it holds for; None: every GPU of the node.
        namespaces: Namespaces whose pods may ask; None: every namespace.
        power_limit_watts: Power limits that may be asked for, both ends included; None: all that the device allows.
        graphics_clock_megahertz: Graphics clocks that may be asked for.
        memory_clock_megahertz: Memory clocks that may be asked for.
    """

    policy: str
    products: tuple[str, ...] | None = None
    namespaces: tuple[str, ...] | None = None
    power_limit_watts: Range | None = None
    graphics_clock_megahertz: Range | None = None
    memory_clock_megahertz: Range | None = None

    def to_json(self) -> dict[str, Any]:
        """The bounds as JSON types."""
        return asdict(self)

    @staticmethod
    def from_json(body: object, place: str = "") -> GpuBounds:
        """Check and read bounds.

        Args:
            body: What `to_json` gives.
            place: Where they stand in a message, for the error's text.

        Raises:
            MessageError: A field is missing, unknown, of the wrong type or out of bounds. An unknown one is a guard
                rail that this version can't keep.
        """
        read = Fields.of(body, place, GpuBounds)
        return GpuBounds(
            policy=read.text("policy", MAX_NAME_CHARACTERS),
            products=_texts(read, "products", MAX_PRODUCTS, MAX_PRODUCT_CHARACTERS),
            namespaces=_texts(read, "namespaces", MAX_NAMESPACES, MAX_LABEL_CHARACTERS),
            power_limit_watts=_range(read, "power_limit_watts", MAX_LIMIT_WATTS),
            graphics_clock_megahertz=_range(read, "graphics_clock_megahertz", MAX_CLOCK_MEGAHERTZ),
            memory_clock_megahertz=_range(read, "memory_clock_megahertz", MAX_CLOCK_MEGAHERTZ),
        )


@dataclass(frozen=True)
class NodeAnswer:
    """What the operator answers to an agent's report.

    Attributes:
        acknowledged: Uids of pods whose usages have all ended and are kept durably: the agent may forget them.
        bounds: The guard rails that hold on the node from now on; None: the operator cannot say now, those that were
            told last stay.
    """

    acknowledged: tuple[str, ...] = ()
    bounds: tuple[GpuBounds, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON types."""
        return asdict(self)

    @staticmethod
    def from_json(body: object) -> NodeAnswer:
        """Check and read an answer; fields that a later version may add are passed over.

        Raises:
            MessageError: It is not of the form {"acknowledged": […], "bounds": […]}.
        """
        read = Fields.of(body, "", None)
        bounds = None
        if read.values.get("bounds") is not None:
            bounds = _entries(read, "bounds", MAX_BOUNDS, GpuBounds.from_json)
            _once("bounds", "policy", [each.policy for each in bounds])
        return NodeAnswer(_texts(read, "acknowledged", MAX_ACKNOWLEDGED, MAX_UUID_CHARACTERS) or (), bounds)


def _gpu(body: object, place: str) -> NodeGpu:
    read = Fields.of(body, place, NodeGpu)
    source = read.text("source", MAX_LABEL_CHARACTERS)
    if source not in SOURCES:
        raise MessageError(f"{place}.source: found {shown(source)}, expected one of {', '.join(SOURCES)}")
    return NodeGpu(
        uuid=read.text("uuid", MAX_UUID_CHARACTERS),
        product=read.text("product", MAX_PRODUCT_CHARACTERS, default=""),
        energy_millijoules=read.integer("energy_millijoules", maximum=MAX_ENERGY_MILLIJOULES),
        uncertainty_millijoules=read.integer("uncertainty_millijoules", maximum=MAX_ENERGY_MILLIJOULES),
        time_seconds=read.number("time_seconds", minimum=0.0, maximum=MAX_TIME_SECONDS),
        source=source,
    )


def _usage(body: object, place: str) -> PodGpuUsage:
    read = Fields.of(body, place, PodGpuUsage)
    start = read.number("start_time_seconds", minimum=0.0, maximum=MAX_TIME_SECONDS)
    return PodGpuUsage(
        pod_uid=read.text("pod_uid", MAX_UUID_CHARACTERS),
        namespace=read.text("namespace", MAX_LABEL_CHARACTERS),
        pod=read.text("pod", MAX_NAME_CHARACTERS),
        container=read.text("container", MAX_LABEL_CHARACTERS),
        gpu=read.text("gpu", MAX_UUID_CHARACTERS),
        shared=_said(read, "shared"),
        energy_millijoules=read.integer("energy_millijoules", maximum=MAX_ENERGY_MILLIJOULES),
        uncertainty_millijoules=read.integer("uncertainty_millijoules", maximum=MAX_ENERGY_MILLIJOULES),
        start_time_seconds=start,
        time_seconds=read.number("time_seconds", minimum=start, maximum=MAX_TIME_SECONDS),
        ended=_said(read, "ended"),
    )


def _said(read: Fields, name: str) -> bool:
    """True or false, with no default: whether a GPU was shared must not be known by a field that was left out."""
    if name not in read.values:
        raise MessageError(f"{read.place}.{name}: found nothing, expected true or false")
    return read.boolean(name, default=False)


def _range(read: Fields, name: str, maximum: float) -> Range | None:
    if read.values.get(name) is None:
        return None
    ends = read.entries(name, 2)
    place = f"{read.place}.{name}" if read.place else name
    if len(ends) != 2:
        raise MessageError(f"{place}: found {len(ends)} entries, expected the lowest and the highest")
    inside = Fields(place, {"lowest": ends[0], "highest": ends[1]})
    lowest = inside.number("lowest", minimum=0.0, maximum=maximum)
    return lowest, inside.number("highest", minimum=lowest, maximum=maximum)


def _texts(read: Fields, name: str, maximum: int, max_characters: int) -> tuple[str, ...] | None:
    if read.values.get(name) is None:
        return None
    place = f"{read.place}.{name}" if read.place else name
    return tuple(
        Fields(place, {f"[{index}]": value}).text(f"[{index}]", max_characters)
        for index, value in enumerate(read.entries(name, maximum))
    )


def _entries(read: Fields, name: str, maximum: int, entry: Callable[[object, str], Entry]) -> tuple[Entry, ...]:
    return tuple(entry(body, f"{name}[{index}]") for index, body in enumerate(read.entries(name, maximum)))


def _once(place: str, what: str, keys: Sequence[object]) -> None:
    twice = next((key for key, times in Counter(keys).items() if times > 1), None)
    if twice is not None:
        raise MessageError(f"{place}: found {shown(str(twice))} twice, expected one entry a {what}")
