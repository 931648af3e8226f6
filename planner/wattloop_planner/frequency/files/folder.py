"""The output folder: a result appears in it whole, in the place of an earlier one, and nothing else is touched."""

from __future__ import annotations

import contextlib
import functools
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from wattloop import interruption
from wattloop.errors import OperationError, UsageError

SUMMARY = "summary.json"
STAGING_PREFIX = ".wattloop-plan-"
RESULT_FILES = re.compile(
    r"freqs_pipeline_\d{5,}\.py|pipeline_\d{5,}\.(png|svg)|frontier\.(csv|png|svg)|iteration_time_energy\.csv"
    r"|stragglers\.csv|baselines\.csv|summary\.json"
)


def check_output(folder: str | Path) -> None:
    """Check that a result may be written there.

    Raises:
        UsageError: It is a file, or holds anything but an earlier result.
        OperationError: It cannot be read.
    """
    path = Path(folder)
    try:
        # An empty name would be the working folder.
        if not str(folder) or (path.exists() and not path.is_dir()):
            found = "a file" if str(folder) else "no name"
            raise UsageError(
                f"--output {folder}: found {found}, expected a folder that is missing, empty or an earlier result"
            )
        names = sorted(item.name for item in path.iterdir()) if path.exists() else []
    except OSError as error:
        raise OperationError(f"--output {folder}: cannot read: {error.strerror}; name a writable folder") from error
    unknown = [name for name in names if not RESULT_FILES.fullmatch(name) and not name.startswith(STAGING_PREFIX)]
    # A result is complete with its summary; one that was interrupted still has what was written aside.
    if names and not unknown and SUMMARY not in names and not any(name.startswith(STAGING_PREFIX) for name in names):
        unknown = names
    if unknown:
        raise UsageError(
            f"--output {folder}: found {unknown[0]}, expected a folder that is missing, empty or an earlier result "
            "of this command; name another folder"
        )


@contextlib.contextmanager
def replaced(folder: str | Path) -> Iterator[Path]:
    """A folder to write a result in, which replaces the earlier one when the block ends without an exception.

    The files are written aside, inside the folder, and then renamed. The earlier summary goes first and the new one
    comes last: should the machine stop in between, no summary is there, `wattloop plan choose` refuses the folder, and
    the next run replaces what is in it. A signal leaves the earlier result or the new one.

    Raises:
        OperationError: The folder cannot be written; an earlier result stays.
        wattloop.interruption.Interrupted: The program was asked to end while the files were renamed; all are.
    """
    path = Path(folder)
    clean = functools.partial(_clean, path, remove_empty=not path.exists())
    with interruption.cleanup_on_exit(clean):
        try:
            path.mkdir(parents=True, exist_ok=True)
            aside = path / f"{STAGING_PREFIX}{secrets.token_hex(8)}"
            aside.mkdir(mode=0o700)
            yield aside
            with interruption.deferred():
                _move(aside, path)
        except OSError as error:
            raise OperationError(
                f"--output {folder}: cannot write: {error.strerror}; name a writable folder"
            ) from error
        finally:
            clean()


def _clean(path: Path, *, remove_empty: bool) -> None:
    """Remove what was written aside, and the folder itself where it is empty and was missing before."""
    for left in path.glob(f"{STAGING_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    if remove_empty:
        with contextlib.suppress(OSError):
            path.rmdir()


def _move(aside: Path, path: Path) -> None:
    """Put the files in the place of the earlier ones."""
    names = {item.name for item in aside.iterdir()}
    (path / SUMMARY).unlink(missing_ok=True)
    for name in names - {SUMMARY}:
        (aside / name).rename(path / name)
    for item in path.iterdir():
        if RESULT_FILES.fullmatch(item.name) and item.name not in names:
            item.unlink()
    (aside / SUMMARY).rename(path / SUMMARY)
