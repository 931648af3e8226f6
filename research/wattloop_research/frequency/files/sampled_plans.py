"""Copies some plan files of a folder into a new one, to run fewer plans of a frontier than were planned.

As Lowtime's script ``sample.py`` does, which ends where the new folder exists.
"""

from __future__ import annotations

from pathlib import Path

from wattloop.errors import InputError, OperationError, UsageError
from wattloop.files.reading import read_text
from wattloop.pipeline.rank_plan_file import MAX_FILE_BYTES, PLAN_FILE


def sample_plans(source: str | Path, target: str | Path, distance: int) -> tuple[int, int]:
    """Copy every plan at this distance, from the first one on, and the last one.

    Args:
        source: Folder of plan files.
        target: The new folder.
        distance: Number of plans from one to the next.

    Returns:
        Number of copied plans, and of all.

    Raises:
        InputError: There is no plan file, or one cannot be read.
        OperationError: A folder cannot be read or written.
        UsageError: The new folder exists.
    """
    try:
        numbered = {int(match[1]): file for file in Path(source).iterdir() if (match := PLAN_FILE.fullmatch(file.name))}
    except OSError as error:
        raise OperationError(f"{source}: cannot read: {error.strerror}; name a folder of plans") from error
    if not numbered:
        raise InputError(str(source), "no plan", "files freqs_pipeline_N.py, as wattloop plan writes them")
    files = [numbered[number] for number in sorted(numbered)]
    chosen = files[::distance]
    if chosen[-1] != files[-1]:
        chosen.append(files[-1])
    texts = {file.name: read_text(file, MAX_FILE_BYTES, "a plan file") for file in chosen}
    try:
        Path(target).mkdir(parents=True)
        for name, text in texts.items():
            (Path(target) / name).write_text(text, encoding="utf-8", newline="")
    except FileExistsError as error:
        raise UsageError(f"{target}: found a file or folder, expected none; name a new folder") from error
    except OSError as error:
        raise OperationError(f"{target}: cannot write: {error.strerror}; name a writable folder") from error
    return len(chosen), len(files)
