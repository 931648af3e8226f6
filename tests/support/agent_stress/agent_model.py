"""A model of the agent without processes, disk or devices, which predicts every answer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

POWER, GRAPHICS, MEMORY = "power_limit", "graphics_clock", "memory_clock"
SETTING_OF_DOMAIN = {"graphics": GRAPHICS, "memory": MEMORY}
Key = tuple[str, str]


@dataclass(frozen=True)
class Identity:
    """A caller's identity by kernel and kubelet; ``own`` None: it may use every GPU that is not held."""

    owner: str
    own: frozenset[str] | None = None
    shared: frozenset[str] = frozenset()

    def sees(self, gpu: str) -> bool:
        return self.own is None or gpu in self.own or gpu in self.shared


@dataclass(frozen=True)
class Device:
    """The values that every GPU of the machine accepts."""

    minimum_watts: float
    maximum_watts: float
    clocks: Mapping[str, Sequence[float]]

    def accepts(self, setting: str, value: float) -> bool:
        if setting == POWER:
            return self.minimum_watts <= value <= self.maximum_watts
        return min(self.clocks[setting]) <= value <= max(self.clocks[setting])

    def nearest(self, setting: str, value: float) -> float:
        if setting == POWER:
            return value
        return min(self.clocks[setting], key=lambda step: (abs(step - value), step))


@dataclass
class Lease:
    owner: str
    found: float | None
    held: float
    expires_seconds: float | None


@dataclass(frozen=True)
class Fault:
    """The next call that sets this setting of this GPU fails, once; ``reason`` is what the agent is to make of it."""

    gpu: str
    setting: str
    reason: str


class RefusedByModel(Exception):  # noqa: N818 - an answer
    """The answer is this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class Model:
    """The GPUs and the leases as they must be.

    Attributes:
        device: The values that each GPU accepts.
        current: By (GPU, setting), the current value; None: an unlocked clock.
    """

    device: Device
    current: dict[Key, float | None]
    leases: dict[Key, Lease] = field(default_factory=dict)

    @property
    def gpus(self) -> set[str]:
        return {gpu for gpu, _ in self.current}

    def refusal_of_monitor(self, caller: Identity, request: Mapping[str, Any]) -> str | None:
        """Why the monitor turns a well-formed request away without asking the power controller; None: it asks."""
        gpus = request.get("gpus", ())
        if not all(caller.sees(gpu) for gpu in gpus):
            return "NotYours"
        if request["verb"] == "energy" and not set(gpus) <= self.gpus:
            return "UnknownGpu"
        if request["verb"].startswith("hold") and any(gpu in caller.shared for gpu in gpus):
            return "Shared"
        return None

    def hold(self, request: Mapping[str, Any], now: float, fault: Fault | None = None) -> list[dict[str, Any]]:
        """The power controller's answer to a hold.

        Raises:
            RefusedByModel: It refuses, and every GPU is as it was.
        """
        setting = POWER
        if request["verb"] == "hold_clocks":
            if request["domain"] not in SETTING_OF_DOMAIN:
                raise RefusedByModel("BadRequest")
            setting = SETTING_OF_DOMAIN[request["domain"]]
        seconds = request.get("for_seconds")
        if seconds is not None and seconds <= 0:
            raise RefusedByModel("BadRequest")
        requested = float(request["watts" if setting == POWER else "megahertz"])
        gpus: list[str] = list(request["gpus"])
        self._refuse_held_by_others(request["owner"], gpus)
        if not set(gpus) <= self.gpus:
            raise RefusedByModel("UnknownGpu")
        if not self.device.accepts(setting, requested):
            raise RefusedByModel("OutOfRange")
        if fault is not None and fault.setting == setting and fault.gpu in gpus:
            self._undone(setting, gpus)
            raise RefusedByModel(fault.reason)
        value = self.device.nearest(setting, requested)
        for gpu in gpus:
            key = (gpu, setting)
            found = self.leases[key].found if key in self.leases else self.current[key]
            self.leases[key] = Lease(request["owner"], found, value, None if seconds is None else now + seconds)
            self.current[key] = value
        enforced = value if setting == POWER else None
        return [
            {"uuid": gpu, "found": self.leases[gpu, setting].found, "held": value, "enforced": enforced} for gpu in gpus
        ]

    def _undone(self, setting: str, gpus: Iterable[str]) -> None:
        # What was held before is set again, also where another actor had set something else meanwhile.
        for gpu in gpus:
            if (gpu, setting) in self.leases:
                self.current[gpu, setting] = self.leases[gpu, setting].held

    def release(self, owner: str | None, gpus: Sequence[str] | None, fault: Fault | None = None) -> set[Key]:
        """The power controller's answer to a release.

        Raises:
            RefusedByModel: It refuses; with a fault, what could not be restored is restored at the next tick.
        """
        if owner is not None and gpus is not None:
            self._refuse_held_by_others(owner, gpus)
        chosen = {
            key
            for key, lease in self.leases.items()
            if (owner is None or lease.owner == owner) and (gpus is None or key[0] in gpus)
        }
        fails = fault is not None and (fault.gpu, fault.setting) in chosen and self._is_set_by(fault)
        for key in chosen:
            self._restore(key)
        if fails:
            raise RefusedByModel("NotRestored")
        return chosen

    def tick(self, now: float) -> int:
        """End what has expired; returns how many leases."""
        over = [key for key, each in self.leases.items() if each.expires_seconds is not None]
        over = [key for key in over if (self.leases[key].expires_seconds or 0.0) <= now]
        for key in over:
            self._restore(key)
        return len(over)

    def another_actor_sets(self, gpu: str, watts: float) -> None:
        self.current[gpu, POWER] = watts

    def listed(self) -> set[tuple[object, ...]]:
        """All leases: (GPU, setting, found, held, owner)."""
        return {(*key, lease.found, lease.held, lease.owner) for key, lease in self.leases.items()}

    def _refuse_held_by_others(self, owner: str, gpus: Iterable[str]) -> None:
        wanted = set(gpus)
        if any(gpu in wanted and lease.owner != owner for (gpu, _), lease in self.leases.items()):
            raise RefusedByModel("NotYours")

    def _is_set_by(self, fault: Fault) -> bool:
        key = (fault.gpu, fault.setting)
        lease = self.leases[key]
        return fault.setting != POWER or (self.current[key] == lease.held and lease.held != lease.found)

    def _restore(self, key: Key) -> None:
        lease = self.leases.pop(key)
        # Another actor's power limit is left.
        if key[1] != POWER or self.current[key] == lease.held:
            self.current[key] = lease.found
