"""Messages between a node's agent and the operator: the energy of each pod and GPU, and the bounds of requests."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from wattloop.wire.message_fields import Integer, Number, NumberRange, OneOf, String
from wattloop.wire.training_messages import (
    MAX_GPUS,
    MAX_LIMIT_WATTS,
    MAX_PRODUCT_CHARACTERS,
    MAX_REFUSAL_CHARACTERS,
    MAX_UUID_CHARACTERS,
    ClockSeconds,
    Millijoules,
    check_clock,
)
from wattloop.wire.wire_form import MaxItems, WireForm, check_unique

MAX_NODE_REPORT_BYTES = 1024 * 1024
MAX_NODE_ANSWER_BYTES = 4 * 1024 * 1024
# A report with this many entries of maximum length fits MAX_NODE_REPORT_BYTES. An agent with more
# entries sends several reports.
MAX_POD_GPU_USAGES = 1024
MAX_ACKNOWLEDGED = MAX_POD_GPU_USAGES
# A pod with a limit has a GPU of its own.
MAX_POD_LIMITS = MAX_GPUS
MAX_BOUNDS = 256
MAX_NAMESPACES = 256
MAX_PRODUCTS = 32
MAX_NAME_CHARACTERS = 253
MAX_LABEL_CHARACTERS = 63
MAX_CLOCK_MEGAHERTZ = 20_000.0
COUNTER, INTEGRATED = "counter", "integrated"
SOURCES = (COUNTER, INTEGRATED)

Uuid = Annotated[str, String(MAX_UUID_CHARACTERS)]
Name = Annotated[str, String(MAX_NAME_CHARACTERS)]
Label = Annotated[str, String(MAX_LABEL_CHARACTERS)]
Product = Annotated[str, String(MAX_PRODUCT_CHARACTERS)]
Range = tuple[float, float]
Clock = Annotated[Range, NumberRange(MAX_CLOCK_MEGAHERTZ)]
PowerLimit = Annotated[Range, NumberRange(MAX_LIMIT_WATTS)]


@dataclass(frozen=True)
class NodeGpu(WireForm):
    """The energy of one GPU, of all its users together."""

    uuid: Annotated[Uuid, "UUID of the GPU."]
    energy_millijoules: Annotated[Millijoules, "Energy of the GPU since the ledger began, of all its users."]
    uncertainty_millijoules: Annotated[Millijoules, "Bound on the error of the energy."]
    time_seconds: Annotated[ClockSeconds, "The agent's clock at that reading; simulated GPUs have simulated clocks."]
    source: Annotated[str, OneOf(SOURCES), "counter: the GPU's energy counter; integrated: power integrated over time."]
    product: Annotated[str, String(MAX_PRODUCT_CHARACTERS, min_length=0), "Product name of the GPU, from NVML."] = ""
    max_power_limit_watts: Annotated[
        float, Number(0.0, MAX_LIMIT_WATTS), "The highest power limit that the GPU accepts; 0 if it is not known."
    ] = 0.0
    enforced_power_limit_watts: Annotated[
        float, Number(0.0, MAX_LIMIT_WATTS), "The power limit in force; 0 if it is not known."
    ] = 0.0


@dataclass(frozen=True)
class PodGpuUsage(WireForm):
    """The energy that one container of a pod used on one GPU; one entry per (pod uid, container, GPU)."""

    pod_uid: Annotated[Uuid, "Uid of the pod."]
    namespace: Annotated[Label, "Namespace of the pod."]
    pod: Annotated[Name, "Name of the pod."]
    container: Annotated[Label, "The container that the GPU is allocated to."]
    gpu: Annotated[Uuid, "UUID of the GPU; for a MIG device or a time-sliced replica, of its parent GPU."]
    shared: Annotated[bool, "Whether others use the GPU too, or can, so that its energy is not this pod's alone."]
    energy_millijoules: Annotated[Millijoules, "Energy since the GPU was allocated to the pod."]
    uncertainty_millijoules: Annotated[Millijoules, "Bound on the error of the energy."]
    start_time_seconds: Annotated[ClockSeconds, "The agent's clock when the GPU was allocated to the pod."]
    time_seconds: Annotated[
        ClockSeconds,
        "The agent's clock at the newest reading, or when the pod released the GPU; never less than at the start.",
    ]
    ended: Annotated[bool, "Whether the pod has released the GPU, so that the energy is final."]

    @property
    def key(self) -> tuple[str, str, str]:
        """The unique key within the ledger: pod uid, container, GPU."""
        return self.pod_uid, self.container, self.gpu

    def check(self, place: str) -> None:
        """See `WireForm`: the clock does not decrease."""
        check_clock(place, self.start_time_seconds, self.time_seconds)


@dataclass(frozen=True)
class PodLimitState(WireForm):
    """What an agent did about the power limit that the operator orders for one pod."""

    pod_uid: Annotated[Uuid, "Uid of the pod."]
    allowed_watts: Annotated[
        PowerLimit | None, "Power limits that the pod may request of all its GPUs; null if it may request none."
    ] = None
    held_watts: Annotated[
        float, Number(0.0, MAX_LIMIT_WATTS), "The limit held for the pod on all its GPUs; 0 if none is held."
    ] = 0.0
    held_seconds: Annotated[ClockSeconds, "For how long it has been held, until this report."] = 0.0
    refusal: Annotated[
        str,
        String(MAX_REFUSAL_CHARACTERS, min_length=0),
        "Why the limit that the operator ordered is not held; empty if it is held or none was ordered.",
    ] = ""


@dataclass(frozen=True)
class NodeReport(WireForm):
    """A cumulative report of an agent on its node.

    Example:
        >>> NodeReport.from_json({"node": "n1", "ledger": "3f", "sequence": -1})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        wattloop.wire.message_fields.MessageError: sequence: found -1, expected a whole number from 0 to ...
    """

    node: Annotated[Name, "Name of the Kubernetes node."]
    ledger: Annotated[Label, "Id of the ledger. The numbers of a new ledger start at 0, and those of ledgers add up."]
    sequence: Annotated[int, Integer(), "Increases with each report of an agent."]
    gpus: Annotated[tuple[NodeGpu, ...], MaxItems(MAX_GPUS), "The node's GPUs."] = ()
    usages: Annotated[
        tuple[PodGpuUsage, ...],
        MaxItems(MAX_POD_GPU_USAGES),
        "One entry per pod, container and GPU; ended ones until they are acknowledged. An agent with more entries than "
        "a report can hold sends several reports, and an entry that is not in a report has not changed.",
    ] = ()
    limits: Annotated[
        tuple[PodLimitState, ...],
        MaxItems(MAX_POD_LIMITS),
        "One entry per pod of the report for which the operator has ordered a power limit.",
    ] = ()
    complete: Annotated[
        bool,
        "Whether each pod that holds a GPU now has an entry: the kubelet answers, all that it lists are GPUs of known "
        "pods, and this is no part of a report.",
    ] = False

    def check(self, place: str) -> None:
        """See `WireForm`: each GPU and each usage has one entry."""
        check_unique(f"{place}gpus", "GPU", [gpu.uuid for gpu in self.gpus])
        check_unique(f"{place}usages", "pod uid, container and GPU", [usage.key for usage in self.usages])
        check_unique(f"{place}limits", "pod", [limit.pod_uid for limit in self.limits])


@dataclass(frozen=True)
class GpuBounds(WireForm):
    """The bounds of one GPUPowerPolicy that applies to the node.

    A request must be within the bounds of all policies that apply to its GPU. The open end of a range is 0, or the
    largest value that any GPU can have (`MAX_LIMIT_WATTS`, `MAX_CLOCK_MEGAHERTZ`). An unknown field is an error, since
    it is a bound that this version cannot enforce.
    """

    always_complete: ClassVar[bool] = True

    policy: Annotated[Name, "Name of the policy."]
    products: Annotated[
        tuple[Product, ...] | None,
        MaxItems(MAX_PRODUCTS),
        "Product names of the GPUs that the policy applies to; null for every GPU of the node.",
    ] = None
    namespaces: Annotated[
        tuple[Label, ...] | None,
        MaxItems(MAX_NAMESPACES),
        "Namespaces whose pods may make requests; null for every namespace.",
    ] = None
    power_limit_watts: Annotated[
        PowerLimit | None, "Power limits that may be requested, both ends included; null for all that the GPU allows."
    ] = None
    graphics_clock_megahertz: Annotated[Clock | None, "Graphics clocks that may be requested; null for all."] = None
    memory_clock_megahertz: Annotated[Clock | None, "Memory clocks that may be requested; null for all."] = None


@dataclass(frozen=True)
class PodLimit(WireForm):
    """The power limit that an agent is to hold for a pod whose training cannot ask for it itself."""

    ignores_unknown_fields: ClassVar[bool] = True
    always_complete: ClassVar[bool] = True

    pod_uid: Annotated[Uuid, "Uid of the pod."]
    watts: Annotated[
        float | None,
        Number(1.0, MAX_LIMIT_WATTS),
        "The limit to hold on each GPU of the pod; null to hold none, and to report which ones are allowed.",
    ] = None


@dataclass(frozen=True)
class NodeAnswer(WireForm):
    """The operator's answer to an agent's report."""

    ignores_unknown_fields: ClassVar[bool] = True
    always_complete: ClassVar[bool] = True

    acknowledged: Annotated[
        tuple[Uuid, ...],
        MaxItems(MAX_ACKNOWLEDGED),
        "Uids of pods whose usages have all ended and are stored durably; the agent may delete them.",
    ] = ()
    bounds: Annotated[
        tuple[GpuBounds, ...] | None,
        MaxItems(MAX_BOUNDS),
        "The bounds that apply to the node from now on; null if the operator does not know them now, and the last ones "
        "stay in force.",
    ] = None
    limits: Annotated[
        tuple[PodLimit, ...],
        MaxItems(MAX_POD_LIMITS),
        "Power limits to hold for pods of the report, as if these pods had asked for them. For a pod without an entry "
        "nothing changes.",
    ] = ()

    def check(self, place: str) -> None:
        """See `WireForm`: each policy has one entry."""
        check_unique(f"{place}bounds", "policy", [each.policy for each in self.bounds or ()])
        check_unique(f"{place}limits", "pod", [each.pod_uid for each in self.limits])
