"""Folders that are built once per digest of their inputs."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

NOT_A_SOURCE = {"__pycache__", ".mypy_cache", ".ruff_cache"}
# Leftovers of earlier builds in the tree.
NOT_A_SOURCE_SUFFIX = {".so", ".pyc", ".egg-info"}


def made_once(
    cache: Path, kind: str, made_from: Iterable[str | Path], make: Callable[[Path], None], *, keep: int = 2
) -> Path:
    """The folder that `make` fills, from the cache where it is there.

    Builds at the same time wait for each other; a folder appears whole or not at all.

    Args:
        kind: The kind of the folder, one word.
        made_from: Words, files and folders; others make another folder.
        keep: How many folders of this kind stay in the cache, those used last.
    """
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"{kind}-{digest(made_from)}"
    with (cache / f".{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for leftover in cache.glob(f".{kind}-*"):
                _remove(leftover)
            unfinished = Path(tempfile.mkdtemp(dir=cache, prefix=f".{kind}-"))
            make(unfinished)
            unfinished.rename(folder)
        os.utime(folder)
        others = sorted(cache.glob(f"{kind}-*"), key=lambda each: each.stat().st_mtime)
        for old in others[:-keep]:
            _remove(old)
    return folder


def _remove(folder: Path) -> None:
    """Removes a folder; what a build that was killed left mounted there must not be reached through it."""
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    for path in sorted((each for each in mounted if each.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", path], check=True)
    shutil.rmtree(folder)


def digest(made_from: Iterable[str | Path]) -> str:
    """Of words, and of names and contents of files and of the files in folders."""
    total = hashlib.sha256()
    for each in made_from:
        if isinstance(each, str):
            total.update(f"{each}\0".encode())
            continue
        for path in sorted(_files(each)):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{path.relative_to(each.parent)}\0{content}\0".encode())
    return total.hexdigest()[:16]


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.name not in NOT_A_SOURCE and path.suffix not in NOT_A_SOURCE_SUFFIX:
        for each in path.iterdir():
            if each.suffix not in NOT_A_SOURCE_SUFFIX:
                yield from _files(each)
