"""Publishes the model of an attempt that reached its target: one rename, or one object, makes it current.

An attempt writes its files into a folder of its own. Publication makes them durable, adds a description
(`wattloop-model.json`), and replaces the symbolic link `current` by a new one. A process that is killed at any
moment leaves the former link or the new one, each to complete files. Where the files are in an object store, which
has no rename, a marker object names them instead: one write replaces it as a whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from wattloop.errors import OperationError

CURRENT = "current"
MARKER = "current.json"
DESCRIPTION = "wattloop-model.json"
DIGEST_BYTES = 16
CHUNK_BYTES = 1 << 20
SCHEME = "://"


class PublishError(OperationError):
    """A model could not be published; what was current still is."""


class MarkerStore(Protocol):
    """Reads and writes small objects of an object store, by URL. A write replaces an object as a whole."""

    def read(self, url: str) -> bytes | None:
        """The content of an object; None if it does not exist."""
        ...

    def write(self, url: str, content: bytes) -> None:
        """Create or replace an object."""
        ...


def is_url(location: str) -> bool:
    """Whether a location is in an object store instead of a file system.

    Example:
        >>> is_url("s3://models/digits"), is_url("/models/digits")
        (True, False)
    """
    return SCHEME in location


def current_of(directory: str) -> str:
    """Location of what is current in a job's output directory.

    Example:
        >>> current_of("/models/digits"), current_of("s3://models/digits/")
        ('/models/digits/current', 's3://models/digits/current.json')
    """
    return f"{directory.rstrip('/')}/{MARKER if is_url(directory) else CURRENT}"


class AttemptOutput:
    """The files of one attempt, and their publication.

    Args:
        location: Folder or URL for the files; empty: none.
        current: Location of what is current.
        store: Writes the marker of an object store; None: nothing is published there.

    Attributes:
        location: Folder or URL for the files of this process; empty: none.
    """

    def __init__(self, location: str, current: str, store: MarkerStore | None = None) -> None:
        self._current = current
        self._store = store
        self.location = location if not location or is_url(location) else _unpublished(location)

    def create(self) -> None:
        """Create the folder.

        Raises:
            PublishError: It cannot be created, or the location is a URL and there is no store for its marker.
        """
        if is_url(self.location):
            if self._store is None:
                raise PublishError(f"{self.location}: Run(marker_store=…) must write {self._current}")
        elif self.location:
            try:
                Path(self.location).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise PublishError(f"{self.location}: cannot be created: {error.strerror}") from error

    def current(self) -> str:
        """Folder or URL of the files that are current.

        Raises:
            PublishError: Nothing is current, or the marker cannot be read.
        """
        if is_url(self.location):
            return self._current_of_marker()
        folder = Path(self._current).resolve()
        if not folder.is_dir():
            raise PublishError(f"{self._current} does not exist")
        return str(folder)

    def _current_of_marker(self) -> str:
        if self._store is None:
            raise PublishError(f"{self._current}: Run was given no marker_store")
        try:
            content = self._store.read(self._current)
            path = None if content is None else json.loads(content)["path"]
        except Exception as error:  # of the user's own store, or of an object that is no marker
            raise PublishError(f"{self._current}: cannot be read: {type(error).__name__}: {error}") from error
        if not isinstance(path, str):
            raise PublishError(f"{self._current} does not exist")
        return path

    def publish(self, facts: Mapping[str, object], keep_alive: Callable[[], None] = lambda: None) -> str:
        """Make the files current, and return the digest of the files or of the marker.

        Args:
            facts: What the description says about the model, as JSON types.
            keep_alive: Called between parts of large files.

        Raises:
            PublishError: They could not be published; what was current still is.
        """
        if not is_url(self.location):
            return publish_folder(Path(self.location), Path(self._current), facts, keep_alive)
        if self._store is None:
            raise PublishError(f"{self.location}: Run was given no marker_store")
        return publish_object(self.location, self._current, facts, self._store)


def _unpublished(location: str) -> str:
    """The folder, or one beside it if it is published: a process that was started again must not change it."""
    candidates = itertools.chain([location], (f"{location}-{number}" for number in itertools.count(2)))
    return next(each for each in candidates if not Path(each, DESCRIPTION).exists())


def publish_folder(
    folder: Path, current: Path, facts: Mapping[str, object], keep_alive: Callable[[], None] = lambda: None
) -> str:
    """Make the files of a folder durable and current.

    Args:
        folder: The attempt's files.
        current: The symbolic link to replace.
        facts: What the description says about the model, as JSON types.
        keep_alive: Called between parts of large files.

    Returns:
        The digest of the files: their names, sizes and contents.

    Raises:
        PublishError: The folder is missing, empty or cannot be read, or the link cannot be written. What was current
            still is.
    """
    try:
        digest, folders = _digest_of(folder, keep_alive)
        _write_durably(folder / DESCRIPTION, _description(facts, digest))
        for each in folders:
            _sync(each)
        _sync(folder.parent)
        _replace_link(folder, current)
    except OSError as error:
        where = error.filename or current
        raise PublishError(f"{where}: cannot be published: {error.strerror or error}") from error
    return digest


def publish_object(location: str, marker: str, facts: Mapping[str, object], store: MarkerStore) -> str:
    """Make what a training has stored at a URL current, by one write of the marker.

    Args:
        location: URL of the attempt's files.
        marker: URL of the marker.
        facts: What the marker says about the model, as JSON types.
        store: Writes the marker.

    Returns:
        The digest of the marker.

    Raises:
        PublishError: The marker could not be written.
    """
    content = _description({"path": location, **facts}, "")
    try:
        store.write(marker, content)
    except Exception as error:  # of the user's own store
        raise PublishError(f"{marker}: cannot be written: {type(error).__name__}: {error}") from error
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()


def _digest_of(folder: Path, keep_alive: Callable[[], None]) -> tuple[str, list[Path]]:
    """The digest of a folder's files, which are durable then, and its folders, the innermost first."""
    if not folder.is_dir():
        raise PublishError(f"{folder} does not exist: save the model into run.output_dir")
    total = hashlib.blake2b(digest_size=DIGEST_BYTES)
    files = [each for each in _files(folder) if each != folder / DESCRIPTION]
    if not files:
        raise PublishError(f"{folder} is empty: save the model into run.output_dir before the run ends")
    for file in files:
        content = hashlib.blake2b(digest_size=DIGEST_BYTES)
        size = 0
        for chunk in _chunks(file):
            content.update(chunk)
            size += len(chunk)
            keep_alive()
        name = file.relative_to(folder).as_posix()
        total.update(json.dumps([name, size, content.hexdigest()]).encode() + b"\n")
    folders = {folder, *(parent for file in files for parent in file.parents if folder in parent.parents)}
    return total.hexdigest(), sorted(folders, key=lambda each: len(each.parts), reverse=True)


def _files(folder: Path) -> list[Path]:
    """All files below a folder, in the order of their names."""

    def fail(error: OSError) -> None:
        raise error

    return sorted(
        Path(root, name)
        for root, folders, names in os.walk(folder, onerror=fail)
        for name in (*names, *(each for each in folders if Path(root, each).is_symlink()))
    )


def _chunks(file: Path) -> Iterator[bytes]:
    """The content of a file, which is durable when it has been read; of a symbolic link its target."""
    kind = file.lstat().st_mode
    if stat.S_ISLNK(kind):
        yield os.fsencode(file.readlink())
        return
    if not stat.S_ISREG(kind):
        raise PublishError(f"{file} is no regular file; remove it before the run ends")
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


def _description(facts: Mapping[str, object], digest: str) -> bytes:
    described = {**facts, **({"digest": digest} if digest else {})}
    return json.dumps(described, indent=2, sort_keys=True).encode() + b"\n"


def _write_durably(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def _replace_link(folder: Path, current: Path) -> None:
    if current.is_dir() and not current.is_symlink():
        raise PublishError(f"{current} is a folder, and not the link that Wattloop writes; move it away")
    # The name of the attempt, so that one killed attempt leaves at most one link aside.
    aside = current.with_name(f".{current.name}.{folder.name}")
    with contextlib.suppress(FileNotFoundError):
        aside.unlink()
    aside.symlink_to(os.path.relpath(folder, current.parent), target_is_directory=True)
    aside.replace(current)
    _sync(current.parent)


def _sync(folder: Path) -> None:
    """Make the entries of a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
