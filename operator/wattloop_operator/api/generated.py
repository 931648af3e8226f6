"""Files that are written from the models: writing them, and telling whether they are up to date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from wattloop.files.atomic_write import open_atomic


def main(arguments: Sequence[str] | None, *, what: str, folder: str, pattern: str, files: Mapping[str, str]) -> int:
    """Write files into a folder, or with --check only compare them; returns the exit code.

    Args:
        arguments: The command line, without the program; None: the process's own.
        what: What the files are, for --help.
        folder: Where the files are by default.
        pattern: Which files of the folder are generated; one that matches but is not among `files` is out of date.
        files: Text by file name.
    """
    parser = argparse.ArgumentParser(description=f"Writes {what}.")
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path(folder), help=f"where they are (default: {folder})"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of date")
    options = parser.parse_args(arguments)
    if options.check:
        stale = out_of_date(options.folder, pattern, files)
        for path in stale:
            sys.stderr.write(f"{path}: out of date; run make generate\n")
        return 1 if stale else 0
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        with open_atomic(options.folder / name) as stream:
            stream.write(text)
    return 0


def out_of_date(folder: Path, pattern: str, files: Mapping[str, str]) -> list[Path]:
    """Files of the folder that are missing, differ, or should not be there."""
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob(pattern)}
    return sorted(folder / name for name in files.keys() | found.keys() if files.get(name) != found.get(name))
