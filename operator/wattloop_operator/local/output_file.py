"""The lines of a file that a training writes, on this machine: its output, or the rows that it adds and rewrites.

A file of rows may be there before the training starts, with those of an earlier run. They do not count: of a file that
goes on from them, only what is added is read. A file that is replaced, or becomes shorter, is read from its beginning,
but one that is rewritten with the earlier rows and more goes on from them, too. As long as such a file has fewer
rows than before, it may be either, and nothing of it is read for a while. Whether what follows the earlier rows is all
that this run has written is judged by the reader (`RowReader.pass_earlier`).

A last line without a line feed may be half written, so it waits.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from wattloop_operator.domain.metric_rows import OF_WHICH_RUN, RowReader
from wattloop_operator.domain.training_output import MAX_LINE_BYTES

READ_BYTES = 256 * 1024
# So much before the place up to which a file is read is compared, to see that it goes on from there.
COMPARED_BYTES = 4096
# So much of the beginning of an earlier run's file is compared.
MAX_EARLIER_BYTES = 1024 * 1024
# To rewrite a file takes less. One that is still shorter then is another file, which only begins alike.
DOUBT_SECONDS = 2.0


class OutputFile:
    r"""Follows the file of one attempt. Make it before the process starts.

    Args:
        path: The file; it need not exist.
        rows: Reads the rows; None: the file is an output, which nobody rewrites, and in which a carriage return ends a
            line, too.
        monotonic: Monotonic seconds.

    Attributes:
        offset: Number of bytes read, in all contents of the file.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "log"
        >>> file = OutputFile(path)
        >>> _ = path.write_bytes(b"a=1\rb=2\nrest")
        >>> file.read(), file.read()
        ([(4, b'a=1'), (8, b'b=2')], [])
    """

    def __init__(
        self, path: Path, rows: RowReader | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._rows = rows
        self._monotonic = monotonic
        self.offset = 0
        # Of the file that is read: which it is, up to where, and what stands before that place.
        self._inode = 0
        self._place = 0
        self._before = b""
        self._part = b""
        self._skips_part = False
        # The file as it was when the training started: beginning, size, and when it was written.
        self._earlier = b""
        self._earlier_size = self._earlier_nanoseconds = 0
        self._doubted_since: float | None = None
        self._has_ended = self._has_read = False
        if rows is not None:
            self._pass_earlier_rows(rows)

    def finish(self) -> None:
        """Note that the process has ended: the file is complete."""
        self._has_ended = True

    def read(self) -> list[tuple[int, bytes]]:
        """The next complete lines, each with the position of its end, which rises; none if there are none yet."""
        try:
            with self._opened() as stream:
                return self._read(stream.fileno())
        except OSError:
            # It is replaced, or not made yet.
            return []

    def rest(self) -> Sequence[tuple[int, bytes]]:
        """The last line, if it does not end: once the process has ended well, nothing more comes."""
        return [(self.offset, self._part)] if self._part and not self._skips_part else []

    def problem(self) -> str:
        """Why the file of a training that has ended has no row of it; empty if it has some."""
        if self._has_read:
            return ""
        try:
            with self._opened() as stream:
                written = os.fstat(stream.fileno()).st_mtime_ns
        except OSError as error:
            return f"{self._path} cannot be read: {error.strerror}"
        if not self._earlier_size:
            return f"{self._path} is empty"
        if written != self._earlier_nanoseconds:
            return f"{self._path} was written again and has what it had before the start, {OF_WHICH_RUN}"
        return f"{self._path} was not written: it has what it had before the start"

    def _opened(self) -> BinaryIO:
        """The file; a named pipe or a device is none, and opening it might wait for ever."""
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "it is no regular file", str(self._path))
        return os.fdopen(descriptor, "rb")

    def _pass_earlier_rows(self, rows: RowReader) -> None:
        try:
            with self._opened() as stream:
                status = os.fstat(stream.fileno())
                self._inode, self._earlier_size = status.st_ino, status.st_size
                self._earlier_nanoseconds = status.st_mtime_ns
                self._earlier = stream.read(min(status.st_size, MAX_EARLIER_BYTES))
                self._go_on(stream.fileno(), rows)
        except OSError:
            return

    def _go_on(self, descriptor: int, rows: RowReader) -> None:
        if self._earlier_size:
            self._place, self._before = self._earlier_size, _tail(descriptor, self._earlier_size)
            self._skips_part = not self._before.endswith(b"\n")
            rows.pass_earlier(self._earlier[:MAX_LINE_BYTES].partition(b"\n")[0], self._before)

    def _read(self, descriptor: int) -> list[tuple[int, bytes]]:
        lines: list[tuple[int, bytes]] = []
        while not lines:
            status, rows = os.fstat(descriptor), self._rows
            is_other = rows is not None and self._is_other(descriptor, status)
            if rows is not None and is_other and not self._begin_again(descriptor, status, rows):
                return []
            data = os.pread(descriptor, READ_BYTES, self._place)
            if not data:
                return []
            self._has_read = True
            start, self.offset = self.offset, self.offset + len(data)
            self._place += len(data)
            self._before = (self._before + data)[-COMPARED_BYTES:]
            lines = self._split(start, data)
        return lines

    def _is_other(self, descriptor: int, status: os.stat_result) -> bool:
        """Whether the file does not go on from what was read of it."""
        if status.st_ino != self._inode or status.st_size < self._place or self._doubted_since is not None:
            return True
        return self._place > 0 and _tail(descriptor, self._place) != self._before

    def _begin_again(self, descriptor: int, status: os.stat_result, rows: RowReader) -> bool:
        """Read a file that is rewritten; False as long as it is in doubt where its rows of this run begin."""
        beginning = self._earlier[: status.st_size]
        begins_alike = bool(self._earlier) and os.pread(descriptor, len(beginning), 0) == beginning
        if begins_alike and status.st_size < self._earlier_size and not self._has_ended:
            self._doubted_since = self._monotonic() if self._doubted_since is None else self._doubted_since
            if self._monotonic() - self._doubted_since < DOUBT_SECONDS:
                return False
        goes_on = begins_alike and status.st_size >= self._earlier_size
        self._inode, self._place, self._before, self._part = status.st_ino, 0, b"", b""
        self._skips_part, self._doubted_since = False, None
        rows.restart()
        if goes_on:
            self._go_on(descriptor, rows)
        else:
            # What is written from here on is of this run, however it begins.
            self._earlier, self._earlier_size = b"", 0
        return True

    def _split(self, start: int, data: bytes) -> list[tuple[int, bytes]]:
        lines = []
        for piece in (data.replace(b"\r", b"\n") if self._rows is None else data).splitlines(keepends=True):
            start += len(piece)
            self._part = (self._part + piece)[: MAX_LINE_BYTES + 1]
            if piece.endswith(b"\n"):
                if not self._skips_part:
                    lines.append((start, self._part.rstrip(b"\n")))
                self._part, self._skips_part = b"", False
        return lines


def _tail(descriptor: int, place: int) -> bytes:
    return os.pread(descriptor, min(place, COMPARED_BYTES), max(place - COMPARED_BYTES, 0))
