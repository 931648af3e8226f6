"""A unix socket at a path: what a dead process left there is replaced, what lives there is not."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def listening_socket(path: Path, mode: int = 0o600) -> socket.socket:
    """A socket listening at a path; what a dead process left there is replaced.

    Raises:
        OSError: The path is no socket, or something listens there (``EADDRINUSE``), or its folder
            can't be used.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket() and not _answers(path):
            path.unlink()
        listening.bind(str(path))
        # Nobody can connect before listen(), so there is no moment of another mode.
        path.chmod(mode)
        listening.listen(128)
    except OSError:
        listening.close()
        raise
    return listening


@contextmanager
def removed_on_exit(path: Path) -> Iterator[None]:
    """Removes what is at a path now when the block ends, and leaves alone what another has put there meanwhile.

    While a process ends, and no longer listens, the next one may listen at the path already.
    """
    own = _identity(path)
    try:
        yield
    finally:
        if own is not None and _identity(path) == own:
            path.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    # The number of an inode is soon another file's.
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        return True
