"""Files that survive a kill and a power cut, the file of state that one process owns, and the boot that it is of.

A process that is killed at any instruction, or a power cut, leaves the old or the new file intact.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

# Damaged files that are kept; the last one is replaced, so that they can't fill the disk.
MAX_CORRUPT_FILES = 10
Content = TypeVar("Content")


def write_durably(path: Path, folder: int, data: bytes) -> None:
    """Replace the content of a file with one writer at a time; durable on return.

    It writes to a temporary file, syncs it, renames it, and syncs the folder, by its open descriptor. After an
    `OSError` (the disk is full, the folder is read-only, …) the temporary file is removed if possible.
    """
    temporary = path.with_name(f".{path.name}.aside")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(descriptor)
        temporary.rename(path)
        os.fsync(folder)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def read_at_most(path: Path, limit_bytes: int) -> bytes:
    """The content of a file, at most one byte more than the limit.

    Of a pipe or another special file, it is the content that is available at once.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    data = b""
    try:
        with contextlib.suppress(BlockingIOError):
            while len(data) <= limit_bytes and (part := os.read(descriptor, limit_bytes + 1 - len(data))):
                data += part
    finally:
        os.close(descriptor)
    return data


class CorruptFileError(Exception):
    """A state file is damaged, and was moved aside if possible, so that the next read is a clean one."""


class StateFile(Generic[Content]):
    """A file in a state folder that is locked for this process.

    Args:
        path: The file; its folder exists.
        kind: Its name in messages.
        max_bytes: The largest size that is read.
        encoded: Encodes the content.
        decoded: Decodes it; a `ValueError`, `TypeError`, `KeyError` or `RecursionError` says that it is damaged.

    Raises:
        BlockingIOError: Another process has locked the folder.
        OSError: The folder can't be used.
    """

    def __init__(
        self,
        path: Path,
        kind: str,
        max_bytes: int,
        encoded: Callable[[Content], bytes],
        decoded: Callable[[bytes], Content],
    ) -> None:
        self.path = path
        self._kind = kind
        self._max_bytes = max_bytes
        self._encoded = encoded
        self._decoded = decoded
        self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # The lock is on the folder itself, so that it works for a read-only folder too.
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            if isinstance(error, BlockingIOError):
                message = "another agent uses this state folder; only one agent may run per node"
                raise BlockingIOError(error.errno, message) from error
            raise

    def close(self) -> None:
        """Release the lock."""
        os.close(self._folder)

    def read(self) -> Content | None:
        """The content as last written; None: there is no file.

        Raises:
            CorruptFileError: It is damaged; it was moved aside.
            OSError: It can't be read.
        """
        try:
            data = read_at_most(self.path, self._max_bytes)
        except FileNotFoundError:
            return None
        if len(data) > self._max_bytes:
            raise self.move_aside(f"more than {self._max_bytes} bytes")
        try:
            return self._decoded(data)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self.move_aside(str(error)) from error

    def write(self, content: Content) -> None:
        """Replace the content; durable on return. `OSError`: the disk is full, the folder is read-only, …."""
        write_durably(self.path, self._folder, self._encoded(content))

    def move_aside(self, reason: str) -> CorruptFileError:
        """Move an invalid file aside; return the error that describes it."""
        invalid = f"{self.path}: not a valid {self._kind} ({reason})"
        for number in range(MAX_CORRUPT_FILES):
            target = self.path.with_name(f"{self.path.name}.corrupt-{number}")
            if not target.exists() or number == MAX_CORRUPT_FILES - 1:
                with contextlib.suppress(OSError):
                    self.path.rename(target)
                    return CorruptFileError(f"{invalid}; moved to {target}")
        return CorruptFileError(f"{invalid}; it could not be moved aside")


def boot_id() -> str:
    """The kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
