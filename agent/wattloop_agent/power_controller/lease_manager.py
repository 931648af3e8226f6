"""Applies what `lease_decisions` decides: stores leases, then sets devices, and undoes both on a failure.

At every instant each GPU has the value found before the hold, or the disk says which that was. So a power controller
that is killed at any point leaves enough for the next one to restore the GPUs (`LeaseManager.recover`).
"""

import contextlib
import fcntl
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from wattloop_agent import refusals
from wattloop_agent.durable_file import CorruptFileError
from wattloop_agent.gpu_setting import AllowedRange, GpuSetting
from wattloop_agent.power_controller import lease_decisions
from wattloop_agent.power_controller.devices import NvmlDevices
from wattloop_agent.power_controller.lease import Lease, LeaseFile, LeaseKey
from wattloop_agent.power_controller.lease_decisions import HoldRequest, Restoration
from wattloop_agent.refusals import Reason, RequestError

logger = logging.getLogger(__name__)

# The shortest time between two lines about one lease that can't be restored.
RESTORE_LOG_SECONDS = 10.0
LOCK_NAME = "power-controller.lock"
MAX_NOTE_BYTES = 4096


class NodeLock:
    """A lock that admits one power controller per node, held until `close` or the end of the process.

    Each of two power controllers on the same GPUs would take the value that the other holds for the one to restore.

    Args:
        folder: The folder that all power controllers of the node use, whatever their state folder is; created, for
            root alone, if missing.
        note: A description of this process, for the error message of a second one.

    Raises:
        RequestError: `Reason.ANOTHER_AGENT`: another power controller holds the lock;
            `Reason.STATE_NOT_DURABLE`: the lock can't be used.
    """

    def __init__(self, folder: Path, note: str) -> None:
        path = folder / LOCK_NAME
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise refusals.node_not_locked(path, error) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = self._read_note()
            self.close()
            raise refusals.node_in_use(path, holder) from error
        except OSError as error:
            self.close()
            raise refusals.node_not_locked(path, error) from error
        # On a full disk the note is missing; the lock is held all the same.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, note.encode()[:MAX_NOTE_BYTES], 0)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)

    def _read_note(self) -> str:
        with contextlib.suppress(OSError):
            return os.pread(self._descriptor, MAX_NOTE_BYTES, 0).decode(errors="replace").strip()
        return ""


@dataclass(frozen=True)
class HeldLease:
    """A lease after a hold, and the value that the device enforces (None: not reported)."""

    lease: Lease
    enforced: float | None


class LeaseManager:
    """The leases of one node, on its devices and on its disk.

    Args:
        devices: The GPUs.
        folder: The state folder.
        boot_id: The current boot.
        clock: CLOCK_BOOTTIME, in seconds.
        bounds: The administrator's ranges, by setting; without one, all that the device accepts.
        lock_folder: The folder of the node's lock; None: no other power controller can run.

    Attributes:
        leases: By (GPU, setting).
        state: ``ready``, or why no lease is granted: ``starting`` or a message.
    """

    def __init__(
        self,
        devices: NvmlDevices,
        folder: Path,
        boot_id: str,
        clock: Callable[[], float],
        *,
        bounds: Mapping[GpuSetting, AllowedRange] | None = None,
        lock_folder: Path | None = None,
    ) -> None:
        self._devices = devices
        self._folder = folder
        self._boot_id = boot_id
        self._clock = clock
        self._lock_folder = lock_folder
        self._lock: NodeLock | None = None
        self._file: LeaseFile | None = None
        self._not_ready_reason = Reason.STATE_NOT_DURABLE
        self._unwritten = False
        self._corruption = ""
        self._write_error = ""
        self._restore_errors: dict[LeaseKey, tuple[str, float]] = {}
        self.leases: dict[LeaseKey, Lease] = {}
        self.bounds = dict(bounds or {})
        self.state = "starting"

    @property
    def warning(self) -> str:
        """A condition that an administrator should look at: a corrupt file, a failing disk; empty if there is none."""
        return "; ".join(text for text in (self._corruption, self._write_error) if text)

    def recover(self) -> None:
        """Read the stored leases, and finish or undo interrupted changes.

        An unusable folder is a state, not an error: no lease is granted, and `tick` tries again.
        """
        try:
            if self._lock_folder is not None:
                note = f"process {os.getpid()} with state folder {self._folder}"
                self._lock = self._lock or NodeLock(self._lock_folder, note)
            self._file = self._file or LeaseFile(self._folder)
            found = self._file.read()
        except CorruptFileError as error:
            self._corruption = f"{error}; compare each GPU's limit with its default"
            logger.error("lease file corrupt", extra={"folder": str(self._folder), "error": self._corruption})  # noqa: TRY400
            found = []
        except RequestError as refusal:
            if self.state != refusal.message:
                logger.error("no lease can be granted", extra={"error": refusal.message})  # noqa: TRY400
            self.state, self._not_ready_reason = refusal.message, refusal.reason
            return
        self.leases = lease_decisions.of_this_boot(found, self._boot_id)
        if len(self.leases) < len(found):
            logger.info("leases of an earlier boot discarded", extra={"leases": len(found) - len(self.leases)})
            self._unwritten = True
        self.state = "ready"
        # Clocks may have been moved up to half a second after the file was written: set the stored values.
        self.leases = lease_decisions.clocks_pending(self.leases)
        self._finish_pending()

    def hold(self, request: HoldRequest) -> list[HeldLease]:
        """Hold a setting on all GPUs of the request, or on none.

        Raises:
            RequestError: With any reason; every GPU of the request is unchanged.
        """
        if self.state != "ready":
            self.recover()
        if self.state != "ready":
            raise RequestError(self._not_ready_reason, self.state)
        lease_decisions.refuse_held_by_others(self.leases, request)
        values = self._values(request)
        keys = [(gpu, request.setting) for gpu in request.gpus]
        if request.setting is not GpuSetting.POWER_LIMIT and all(self._is_move(key, request) for key in keys):
            self._move_clocks(request, values)
        else:
            self._change(request, values)
        return [HeldLease(self.leases[key], self._enforced(key)) for key in keys]

    def release(
        self, owner: str | None = None, gpus: tuple[str, ...] | None = None, setting: GpuSetting | None = None
    ) -> list[LeaseKey]:
        """Release the leases of this owner on these GPUs of this setting (None: all), and return them.

        Raises:
            RequestError: Another owner holds one of the GPUs, or a device could not be restored; `tick` retries.
        """
        chosen = lease_decisions.leases_to_release(self.leases, owner, gpus, setting)
        self._release(chosen)
        left = [lease.gpu for lease in chosen if lease.key in self.leases]
        if left:
            raise refusals.not_restored(left)
        return [lease.key for lease in chosen]

    def tick(self) -> None:
        """Release expired leases, and retry what failed; called periodically."""
        if self.state != "ready":
            self.recover()
            return
        self._release(lease_decisions.expired(self.leases, self._clock()))

    def close(self) -> None:
        """Release the locks on the state folder and on the node."""
        for lock in (self._file, self._lock):
            if lock is not None:
                lock.close()
        self._file = self._lock = None
        self.state = "closed"

    def _enforced(self, key: LeaseKey) -> float | None:
        try:
            return self._devices.enforced(*key)
        except RequestError as refusal:
            # The lease is valid although the enforced value is unknown.
            extra = {"gpu": key[0], "error": refusal.message, "owner": self.leases[key].owner}
            logger.warning("held, but not read back", extra=extra)
            return None

    def _values(self, request: HoldRequest) -> dict[str, float]:
        allowed = {gpu: self._devices.allowed(gpu, request.setting) for gpu in request.gpus}
        return lease_decisions.values_to_set(request, allowed, self.bounds.get(request.setting))

    def _is_move(self, key: LeaseKey, request: HoldRequest) -> bool:
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
        begun = lease_decisions.begin_hold(before, request, values, found, self._boot_id)
        keys = [(gpu, request.setting) for gpu in request.gpus]
        self._write(begun)
        self.leases = begun
        try:
            for gpu in request.gpus:
                self._devices.put(gpu, request.setting, values[gpu])
            finished = lease_decisions.finish_hold(begun, keys, request.expires_seconds)
            self._write(finished)
        except RequestError:
            self._finish_pending()
            raise
        self.leases = finished
        logger.info("held", extra={"gpus": request.gpus, request.setting.unit: request.value, "owner": request.owner})

    def _move_clocks(self, request: HoldRequest, values: dict[str, float]) -> None:
        # The stored lease already says how to restore the clocks, wherever they are moved. A plan
        # that moves them at every instruction must not wait for the disk.
        before = self.leases
        moved = dict(before)
        for gpu in request.gpus:
            key = (gpu, request.setting)
            moved[key] = before[key].changed(pending=values[gpu])
            self.leases = moved
            try:
                self._devices.put(gpu, request.setting, values[gpu])
            except RequestError:
                self._finish_pending()
                raise
        keys = [(gpu, request.setting) for gpu in request.gpus]
        self.leases = lease_decisions.finish_hold(moved, keys, request.expires_seconds)
        # The next tick writes it.
        self._unwritten = True

    def _release(self, chosen: Iterable[Lease]) -> None:
        releasing = {lease.key: replace(lease, releasing=True) for lease in chosen}
        if releasing:
            self.leases = self.leases | releasing
            # Stored first, so that an interrupted release is completed. Without a disk, the release
            # goes on all the same.
            self._try_to_write()
        self._finish_pending()

    def _finish_pending(self) -> None:
        """Set each lease with a pending change to its held value, or restore and remove it."""
        for lease in list(self.leases.values()):
            if lease.pending is None and not lease.releasing:
                continue
            try:
                finished = self._finished(lease)
            except RequestError as refusal:
                self._log_once(lease, refusal)
                continue
            self._restore_errors.pop(lease.key, None)
            self.leases = {key: each for key, each in self.leases.items() if key != lease.key}
            if finished is not None:
                self.leases[lease.key] = finished
            self._unwritten = True
        if self._unwritten:
            self._try_to_write()

    def _try_to_write(self) -> None:
        # `_write` logs a failure, and the next tick retries.
        with contextlib.suppress(RequestError):
            self._write(self.leases)

    def _log_once(self, lease: Lease, refusal: RequestError) -> None:
        # A GPU may fail in another way at each attempt, which the owner or a tick repeats.
        now = self._clock()
        logged, logged_seconds = self._restore_errors.get(lease.key, ("", -math.inf))
        if refusal.message != logged and now >= logged_seconds + RESTORE_LOG_SECONDS:
            self._restore_errors[lease.key] = refusal.message, now
            extra = {"gpu": lease.gpu, "setting": lease.setting, "found": lease.found, "error": refusal.message}
            logger.error("not restored, retrying", extra=extra)

    def _finished(self, lease: Lease) -> Lease | None:
        if not lease.releasing and lease.held is not None:
            self._devices.put(lease.gpu, lease.setting, lease.held)
            return replace(lease, pending=None)
        current = self._devices.current(lease.gpu, lease.setting)
        how = lease_decisions.restoration(lease, current)
        if how is Restoration.SET_FOUND:
            try:
                self._devices.put(lease.gpu, lease.setting, lease.found)
            except RequestError as refusal:
                if lease.held is not None or refusal.reason is not Reason.NOT_SUPPORTED:
                    raise
                # The device has no such setting, so the hold changed nothing.
                return None
        extra = {"gpu": lease.gpu, "setting": lease.setting, "found": lease.found, "owner": lease.owner}
        if how is Restoration.LEAVE:
            logger.warning("not restored: another actor has set it", extra={**extra, "current": current})
        else:
            logger.info("restored", extra=extra)
        return None

    def _write(self, leases: dict[LeaseKey, Lease]) -> None:
        if self._file is None:
            raise RequestError(Reason.STATE_NOT_DURABLE, self.state)
        self._unwritten = True
        try:
            self._file.write(leases.values())
        except RequestError as refusal:
            if self._write_error != refusal.message:
                logger.error("leases not written", extra={"error": refusal.message})  # noqa: TRY400
            self._write_error = refusal.message
            raise
        self._unwritten, self._write_error = False, ""
