"""Publishes the model of an attempt that reached its target: one rename, or one object, makes it current.

A process that is killed at any moment leaves the former symbolic link `current` or the new one, each to complete files.
Where the files are in an object store, which has no rename, a marker object names them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from wattloop.errors import OperationError
from wattloop.wire.training_messages import PublishedModel

if TYPE_CHECKING:
    from wattloop.wire.environment import RunEnvironment

logger = logging.getLogger("wattloop")

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


class RunOutput:
    """The files of one attempt, with `spec.output`, and their publication. Failures are logged, and end no training.

    Args:
        environment: The settings of the run; `output_directory` is not empty.
        store: Writes the marker of an object store; None: nothing is published there.

    Attributes:
        location: Folder or URL for the files of this process.
    """

    def __init__(self, environment: RunEnvironment, store: MarkerStore | None = None) -> None:
        self._environment = environment
        self._store = store
        location = environment.output_directory
        self.location = location if is_url(location) else _unpublished(location)

    def create(self) -> None:
        """Create the folder."""
        problem = ""
        if is_url(self.location):
            if self._store is None:
                problem = f"Run(marker_store=…) must write {self._environment.current_model}"
        else:
            try:
                Path(self.location).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                problem = f"cannot be created: {error.strerror}"
        if problem:
            name = self._environment.recurrence
            logger.warning("%s: no model will be published: %s: %s", name, self.location, problem)

    @functools.cached_property
    def warm_start_location(self) -> str:
        """Folder or URL of the model to begin with; empty to begin without one. Found once."""
        if not self._environment.warm_start_directory:
            return ""
        try:
            return self._current_location()
        except PublishError as error:
            logger.warning("%s: begins without the current model: %s", self._environment.recurrence, error)
            return ""

    def _current_location(self) -> str:
        current = self._environment.current_model
        path: object = None
        if not is_url(self.location):
            folder = Path(current).resolve()
            path = str(folder) if folder.is_dir() else None
        elif self._store is None:
            raise PublishError(f"{current}: Run was given no marker_store")
        else:
            try:
                content = self._store.read(current)
                path = None if content is None else json.loads(content)["path"]
            except Exception as error:  # of the user's own store, or of an object that is no marker
                raise PublishError(f"{current}: cannot be read: {type(error).__name__}: {error}") from error
        if not isinstance(path, str):
            raise PublishError(f"{current} does not exist")
        return path

    def publish(
        self, facts: Mapping[str, object], keep_alive: Callable[[], None] = lambda: None
    ) -> PublishedModel | None:
        """Make the files the current model, and return it; None if that failed. What was current still is then.

        Args:
            facts: What the description of the model says besides job and recurrence, as JSON types.
            keep_alive: Called between parts of large files.
        """
        name, current = self._environment.recurrence, self._environment.current_model
        facts = {"job": self._environment.job, "recurrence": name, **facts}
        try:
            if not is_url(self.location):
                digest = publish_folder(Path(self.location), Path(current), facts, keep_alive)
            else:
                digest = _publish_object(self.location, current, facts, self._store)
        except PublishError as error:
            logger.warning("%s: not published: %s", name, error)
            return None
        logger.info("%s: published %s", name, self.location)
        return PublishedModel(self.location.rstrip("/").rpartition("/")[2], digest)


def _unpublished(location: str) -> str:
    """The folder, or one beside it if it is published: a process that was started again must not change it."""
    candidates = itertools.chain([location], (f"{location}-{number}" for number in itertools.count(2)))
    return next(each for each in candidates if not Path(each, DESCRIPTION).exists())


def publish_folder(
    folder: Path, current: Path, facts: Mapping[str, object], keep_alive: Callable[[], None] = lambda: None
) -> str:
    """Make the files of a folder durable and current.

    Returns:
        The digest of the files: their names, sizes and contents.

    Raises:
        PublishError: The folder is missing, empty or cannot be read, or the link cannot be written. What was current
            still is.
    """
    try:
        digest, folders = _digest_of(folder, keep_alive)
        _write_durably(folder / DESCRIPTION, _description({**facts, "digest": digest}))
        for each in folders:
            _sync(each)
        _sync(folder.parent)
        _replace_link(folder, current)
    except OSError as error:
        where = error.filename or current
        raise PublishError(f"{where}: cannot be published: {error.strerror or error}") from error
    return digest


def _publish_object(location: str, marker: str, facts: Mapping[str, object], store: MarkerStore | None) -> str:
    """Make what a training has stored at a URL current, by one write of the marker; returns its digest."""
    if store is None:
        raise PublishError(f"{location}: Run was given no marker_store")
    content = _description({"path": location, **facts})
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


def _description(facts: Mapping[str, object]) -> bytes:
    return json.dumps(facts, indent=2, sort_keys=True).encode() + b"\n"


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
