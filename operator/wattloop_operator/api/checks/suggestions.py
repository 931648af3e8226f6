"""What a misspelt or misplaced field was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

from wattloop_operator.api.checks.problem import Path, shown_path


def closest(found: str, choices: Iterable[str]) -> str | None:
    """The choice that looks like what was found, if one does.

    Example:
        >>> closest("maximise", ["Maximize", "Minimize"])
        'Maximize'
    """
    by_lower = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(found.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def instead_of(name: str, path: Path, properties: Iterable[str], root: dict[str, Any]) -> str:
    """What would be right in place of an unknown field `name` of the object at `path`.

    Args:
        name: The unknown field.
        path: Where the object is that has it.
        properties: The fields that are known there.
        root: The schema of the whole document, to find where the field belongs.
    """
    known = sorted(properties)
    close = closest(name, known)
    if close:
        return f"{close} (did you mean it?)"
    elsewhere = sorted((found for found in _paths_of(root, name, ()) if found[:1] == path[:1]), key=len)
    if elsewhere:
        return f"it at {shown_path(elsewhere[0])} (is it misplaced?)"
    return f"one of {', '.join(known)}" if known else "no fields here"


def _paths_of(schema: dict[str, Any], name: str, path: Path) -> Iterator[Path]:
    properties: dict[str, Any] = schema.get("properties", {})
    if name in properties:
        yield (*path, name)
    for key, part in properties.items():
        yield from _paths_of(part, name, (*path, key))
