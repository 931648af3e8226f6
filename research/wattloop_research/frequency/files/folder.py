"""The output folder: replaces an earlier result completely or not at all, and changes nothing else."""

import contextlib
import functools
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from wattloop import interruption
from wattloop.errors import OperationError, UsageError
from wattloop_research.frequency.baselines import ENVPIPE

SUMMARY = "summary.json"
STAGING_PREFIX = ".wattloop-plan-"
RESULT_FILES = re.compile(
    r"freqs_pipeline_\d{5,}\.py|pipeline_\d{5,}\.(png|svg)|frontier\.(csv|png|svg)|iteration_time_energy\.csv"
    r"|stragglers\.csv|baselines\.csv|summary\.json|plans\.json\.gz|frequencyplan\.json"
    r"|envpipe(/freqs_pipeline_\d{5,}\.py)?"
)


def check_output(folder: str | Path) -> None:
    """Check that a result may be written there.

    Raises:
        UsageError: The path is a file, or the folder has other content than an earlier result.
        OperationError: The folder cannot be read.
    """
    path = Path(folder)
    try:
        # An empty name means the working directory.
        if not str(folder) or (path.exists() and not path.is_dir()):
            found = "a file" if str(folder) else "no name"
            raise UsageError(
                f"--output {folder}: found {found}, expected a folder that is missing, empty or an earlier result"
            )
        names = sorted(item.name for item in path.iterdir()) if path.exists() else []
        if (path / ENVPIPE).is_dir():
            names += sorted(f"{ENVPIPE}/{item.name}" for item in (path / ENVPIPE).iterdir())
    except OSError as error:
        raise OperationError(f"--output {folder}: cannot read: {error.strerror}; name a writable folder") from error
    unknown = [name for name in names if not RESULT_FILES.fullmatch(name) and not name.startswith(STAGING_PREFIX)]
    # A complete result has a summary; an interrupted one has a staging folder.
    if names and not unknown and SUMMARY not in names and not any(name.startswith(STAGING_PREFIX) for name in names):
        unknown = names
    if unknown:
        raise UsageError(
            f"--output {folder}: found {unknown[0]}, expected a folder that is missing, empty or an earlier result "
            "of this command; name another folder"
        )


@contextlib.contextmanager
def replaced(folder: str | Path) -> Iterator[Path]:
    """Yield a staging folder whose files replace the earlier result if the block ends without an exception.

    The staging folder is inside the output folder; its files are renamed at the end. The earlier summary is
    removed first and the new one is renamed last. If the machine stops in between, the summary is missing,
    `wattloop plan choose` rejects the folder, and the next run replaces the content. After a signal, the
    folder has either the earlier result or the new one.

    Raises:
        OperationError: The folder cannot be written; an earlier result remains.
        wattloop.interruption.Interrupted: The program was asked to end while files were renamed; all are.
    """
    path = Path(folder)
    clean = functools.partial(_clean, path, remove_empty=not path.exists())
    with interruption.cleanup_on_exit(clean):
        try:
            path.mkdir(parents=True, exist_ok=True)
            staging = path / f"{STAGING_PREFIX}{secrets.token_hex(8)}"
            staging.mkdir(mode=0o700)
            yield staging
            with interruption.deferred():
                _move(staging, path)
        except OSError as error:
            raise OperationError(
                f"--output {folder}: cannot write: {error.strerror}; name a writable folder"
            ) from error
        finally:
            clean()


def _clean(path: Path, *, remove_empty: bool) -> None:
    """Remove staging folders, and the output folder if it is empty and did not exist before."""
    for staging in path.glob(f"{STAGING_PREFIX}*"):
        shutil.rmtree(staging, ignore_errors=True)
    if remove_empty:
        with contextlib.suppress(OSError):
            path.rmdir()


def _move(staging: Path, path: Path) -> None:
    """Replace the earlier files by those of the staging folder."""
    names = {item.name for item in staging.iterdir()}
    (path / SUMMARY).unlink(missing_ok=True)
    # No folder can be renamed to another one that has files.
    _remove(path / ENVPIPE)
    for name in names - {SUMMARY}:
        (staging / name).rename(path / name)
    for item in path.iterdir():
        if RESULT_FILES.fullmatch(item.name) and item.name not in names:
            _remove(item)
    (staging / SUMMARY).rename(path / SUMMARY)


def _remove(item: Path) -> None:
    if item.is_dir() and not item.is_symlink():
        shutil.rmtree(item)
    else:
        item.unlink(missing_ok=True)
