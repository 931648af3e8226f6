"""Does what `decisions` decides: leases to disk first, then the devices, and back again whatever fails.

At every instant each GPU is as found, or the disk says what was found. So a holder that is killed
anywhere is followed by one that knows what to put back (`LeaseManager.recover`).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from wattloop_agent.power_controller import decisions
from wattloop_agent.power_controller.decisions import AllowedRange, HoldRequest, Restoration
from wattloop_agent.power_controller.devices import Devices
from wattloop_agent.power_controller.lease import UNITS, Key, Lease, Setting
from wattloop_agent.power_controller.lease_file import CorruptLeaseFileError, LeaseFile
from wattloop_agent.power_controller.node_lock import NodeLock
from wattloop_agent.request_error import Reason, RequestError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class HeldLease:
    """A lease after a hold, and what the device says that it enforces (None: it does not say)."""

    lease: Lease
    enforced: float | None


class LeaseManager:
    """The leases of one node, on its devices and on its disk.

    Args:
        devices: The GPUs.
        folder: The state folder.
        boot_id: Of this boot.
        clock: CLOCK_BOOTTIME, in seconds.
        bounds: What the administrator allows, by setting; where there are none, all that the device
            accepts.
        lock_folder: Where the node's one power controller locks; None: nobody else can be there.

    Attributes:
        leases: By (GPU, setting).
        bounds: As above.
        state: ``ready``, or why no lease is given out: ``starting`` or a sentence.
    """

    def __init__(
        self,
        devices: Devices,
        folder: Path,
        boot_id: str,
        clock: Callable[[], float],
        *,
        bounds: Mapping[Setting, AllowedRange] | None = None,
        lock_folder: Path | None = None,
    ) -> None:
        self._devices = devices
        self._folder = folder
        self._boot_id = boot_id
        self._clock = clock
        self._lock_folder = lock_folder
        self._lock: NodeLock | None = None
        self._file: LeaseFile | None = None
        self._not_ready = Reason.STATE_NOT_DURABLE
        self._unwritten = False
        self._damage = ""
        self._unwritten_because = ""
        self._failing: dict[Key, str] = {}
        self.leases: dict[Key, Lease] = {}
        self.bounds = dict(bounds or {})
        self.state = "starting"

    @property
    def warning(self) -> str:
        """What a person should look at: a damaged file, a disk that takes nothing any more; empty: nothing."""
        return "; ".join(told for told in (self._damage, self._unwritten_because) if told)

    def recover(self) -> None:
        """Read the leases of the holder before this one, and finish or undo what was cut off.

        A folder that can't be used is the state, not an error: no lease is given out, and `tick`
        tries again.
        """
        try:
            if self._lock_folder is not None:
                who = f"process {os.getpid()} with state folder {self._folder}"
                self._lock = self._lock or NodeLock(self._lock_folder, who)
            self._file = self._file or LeaseFile(self._folder)
            found = self._file.read()
        except CorruptLeaseFileError as error:
            self._damage = str(error)
            logger.error("lease file corrupt", extra={"folder": str(self._folder), "told": str(error)})  # noqa: TRY400
            found = []
        except RequestError as refusal:
            if self.state != refusal.message:
                logger.error("no lease can be given out", extra={"told": refusal.message})  # noqa: TRY400
            self.state, self._not_ready = refusal.message, refusal.reason
            return
        self.leases = decisions.of_this_boot(found, self._boot_id)
        if len(self.leases) < len(found):
            logger.info("leases of an earlier boot discarded", extra={"leases": len(found) - len(self.leases)})
            self._unwritten = True
        self.state = "ready"
        # Where clocks were moved to last may be half a second newer than the file: set what it
        # says.
        self.leases = decisions.clocks_pending(self.leases)
        self._settle()

    def hold(self, request: HoldRequest) -> list[HeldLease]:
        """Hold a setting on all GPUs of the request, or on none.

        Raises:
            RequestError: For any reason; every GPU of the request is as it was before it.
        """
        if self.state != "ready":
            self.recover()
        if self.state != "ready":
            raise RequestError(self._not_ready, self.state)
        decisions.refuse_held_by_others(self.leases, request)
        values = self._values(request)
        keys = [(gpu, request.setting) for gpu in request.gpus]
        if request.setting is not Setting.POWER_LIMIT and all(self._covers(key, request) for key in keys):
            self._move_clocks(request, values)
        else:
            self._change(request, values)
        return [HeldLease(self.leases[key], self._enforced(key)) for key in keys]

    def release(self, owner: str | None = None, gpus: tuple[str, ...] | None = None) -> list[Key]:
        """Give back what this owner (None: anyone) holds on these GPUs (None: on all); returns what was given back.

        Raises:
            RequestError: One of the GPUs is another's, or a device could not be restored: it is
                tried again by `tick`.
        """
        chosen = decisions.leases_to_release(self.leases, owner, gpus)
        self._give_back(chosen)
        left = [lease.gpu for lease in chosen if lease.key in self.leases]
        if left:
            raise RequestError(Reason.NOT_RESTORED, f"GPU {', '.join(left)}: not restored yet; the agent keeps trying")
        return [lease.key for lease in chosen]

    def tick(self) -> None:
        """What time brings: end expired leases, try again what failed."""
        if self.state != "ready":
            self.recover()
            return
        self._give_back(decisions.expired(self.leases, self._clock()))

    def close(self) -> None:
        """Give up the state folder and the node."""
        for held in (self._file, self._lock):
            if held is not None:
                held.close()
        self._file = self._lock = None
        self.state = "closed"

    def _enforced(self, key: Key) -> float | None:
        try:
            return self._devices.enforced(*key)
        except RequestError as refusal:
            # The lease is made; that the device does not say what is in force must not undo it.
            logger.warning("held, but not read back", extra={"gpu": key[0], "told": refusal.message})
            return None

    def _values(self, request: HoldRequest) -> dict[str, float]:
        allowed = {gpu: self._devices.allowed(gpu, request.setting) for gpu in request.gpus}
        return decisions.values_to_set(request, allowed, self.bounds.get(request.setting))

    def _covers(self, key: Key, request: HoldRequest) -> bool:
        lease = self.leases.get(key)
        return (
            lease is not None
            and lease.pending is None
            and not lease.releasing
            and lease.expires_seconds == request.expires_seconds
        )

    def _change(self, request: HoldRequest, values: dict[str, float]) -> None:
        before = self.leases
        found = {
            gpu: self._devices.current(gpu, request.setting)
            for gpu in request.gpus
            if (gpu, request.setting) not in before
        }
        begun = decisions.begin_hold(before, request, values, found, self._boot_id)
        keys = [(gpu, request.setting) for gpu in request.gpus]
        self._write(begun)
        self.leases = begun
        try:
            for gpu in request.gpus:
                self._devices.put(gpu, request.setting, values[gpu])
            finished = decisions.finish_hold(begun, keys, request.expires_seconds)
            self._write(finished)
        except RequestError:
            self._settle()
            raise
        self.leases = finished
        logger.info("held", extra={"gpus": request.gpus, UNITS[request.setting]: request.value, "owner": request.owner})

    def _move_clocks(self, request: HoldRequest, values: dict[str, float]) -> None:
        # The lease on disk already says how to give the clocks back, whatever they are moved to; a
        # plan that moves them at every instruction can't wait for the disk.
        before = self.leases
        moved = dict(before)
        for gpu in request.gpus:
            key = (gpu, request.setting)
            moved[key] = before[key].changed(pending=values[gpu])
            self.leases = moved
            try:
                self._devices.put(gpu, request.setting, values[gpu])
            except RequestError:
                self._settle()
                raise
        keys = [(gpu, request.setting) for gpu in request.gpus]
        self.leases = decisions.finish_hold(moved, keys, request.expires_seconds)
        # The next tick writes it.
        self._unwritten = True

    def _give_back(self, chosen: Iterable[Lease]) -> None:
        marked = {lease.key: replace(lease, releasing=True) for lease in chosen}
        if marked:
            self.leases = self.leases | marked
            # So that a release that is cut off is carried through. Without a disk it is only not
            # known to be under way.
            self._try_to_write()
        self._settle()

    def _settle(self) -> None:
        """Bring every lease that is between two states to one: as held, or as found and gone."""
        for lease in list(self.leases.values()):
            if lease.pending is None and not lease.releasing:
                continue
            try:
                settled = self._settled(lease)
            except RequestError as refusal:
                self._tell_once(lease, refusal)
                continue
            self._failing.pop(lease.key, None)
            self.leases = {key: each for key, each in self.leases.items() if key != lease.key}
            if settled is not None:
                self.leases[lease.key] = settled
            self._unwritten = True
        if self._unwritten:
            self._try_to_write()

    def _try_to_write(self) -> None:
        # What fails is told by `_write`, and tried again at the next tick.
        with contextlib.suppress(RequestError):
            self._write(self.leases)

    def _tell_once(self, lease: Lease, refusal: RequestError) -> None:
        if self._failing.get(lease.key) != refusal.message:
            self._failing[lease.key] = refusal.message
            words = {"gpu": lease.gpu, "setting": lease.setting, "found": lease.found, "told": refusal.message}
            logger.error("not restored, trying again", extra=words)

    def _settled(self, lease: Lease) -> Lease | None:
        if not lease.releasing and lease.held is not None:
            self._devices.put(lease.gpu, lease.setting, lease.held)
            return replace(lease, pending=None)
        current = self._devices.current(lease.gpu, lease.setting)
        wanted = decisions.restoration(lease, current)
        if wanted is Restoration.SET_FOUND:
            try:
                self._devices.put(lease.gpu, lease.setting, lease.found)
            except RequestError as refusal:
                if lease.held is not None or refusal.reason is not Reason.NOT_SUPPORTED:
                    raise
                # The device has no such setting: the hold changed nothing, and there is nothing to
                # give back.
                return None
        words = {"gpu": lease.gpu, "setting": lease.setting, "found": lease.found, "owner": lease.owner}
        if wanted is Restoration.LEAVE:
            logger.warning("not restored: another actor has set it", extra={**words, "current": current})
        else:
            logger.info("restored", extra=words)
        return None

    def _write(self, leases: dict[Key, Lease]) -> None:
        if self._file is None:
            raise RequestError(Reason.STATE_NOT_DURABLE, self.state)
        self._unwritten = True
        try:
            self._file.write(leases.values())
        except RequestError as refusal:
            if self._unwritten_because != refusal.message:
                logger.error("leases not written", extra={"told": refusal.message})  # noqa: TRY400
            self._unwritten_because = refusal.message
            raise
        self._unwritten, self._unwritten_because = False, ""
