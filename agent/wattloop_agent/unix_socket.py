"""Listens at the path of a unix socket.

Replaces the socket of a dead process, not that of a running one.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def listening_socket(path: Path, mode: int = 0o600) -> socket.socket:
    """A socket that listens at a path; the socket of a dead process there is replaced.

    Raises:
        OSError: The path is no socket, a process listens there (``EADDRINUSE``), or the folder can't be used.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket() and not _answers(path):
            path.unlink()
        listening.bind(str(path))
        # No process can connect before listen(), so the default mode is never effective.
        path.chmod(mode)
        listening.listen(128)
    except OSError:
        listening.close()
        raise
    return listening


@contextmanager
def removed_on_exit(path: Path) -> Iterator[None]:
    """Remove the file at a path when the block ends, unless another process has replaced it.

    The next process may listen at the path before this one has ended.
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
    # Inode numbers are reused.
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        return True
