"""The command line of modules that generate files from the models: it writes the files, or checks them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from wattloop.files.atomic_write import open_atomic


def main(
    arguments: Sequence[str] | None, *, description: str, folder: str, pattern: str, files: Mapping[str, str]
) -> int:
    """Write files into a folder, or only compare them if --check is given; return the exit code.

    Args:
        arguments: Command line without the program; None: the process's own.
        description: Description of the program for --help.
        folder: Default folder of the files.
        pattern: Pattern of the generated files. A file that matches but is not among `files` is out of date.
        files: Text by file name.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path(folder), help=f"folder of the files (default: {folder})"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is out of date")
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
    """Return the files of the folder that are missing, differ, or are not generated any more."""
    current = {path.name: path.read_text(encoding="utf-8") for path in folder.glob(pattern)}
    return sorted(folder / name for name in files.keys() | current.keys() if files.get(name) != current.get(name))
