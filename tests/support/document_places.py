"""The places of a document at which a test changes it."""

from collections.abc import Iterator
from typing import Any


def places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Each object and list below a value, with each of its keys or indices.

    >>> [key for _, key in places({"spec": {"args": ["a"]}})]
    ['spec', 'args', 0]
    """
    entries: Any = ()
    if isinstance(document, dict):
        entries = document.items()
    elif isinstance(document, list):
        entries = enumerate(document)
    for key, part in entries:
        yield document, key
        yield from places(part)
