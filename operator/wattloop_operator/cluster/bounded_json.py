"""Parses JSON of the API server with bounds on depth and size.

Python's own parser fails at the interpreter's recursion limit, and a short text can have a parsed
form of many times its size. An object beyond a bound is unreadable; its identity is read without
the rest, so that it is passed over alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pydantic_core

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# etcd stores at most 1.5 MiB of an object. Such a text can have a parsed form of 60 MiB.
MAX_OBJECT_BYTES = 2 * 1024 * 1024
# The API server stores Jobs and pods in a shorter form than JSON, so that their JSON can have several times as much.
MAX_IDENTITY_BYTES = 8 * 1024 * 1024
# A longer list is parsed item by item.
MAX_WHOLE_LIST_BYTES = 512 * 1024
# The limit of pydantic's parser.
MAX_DEPTH = 200
# metadata.ownerReferences[] of an item in a list; metadata.labels of the object in a watch event.
IDENTITY_LEVELS = 4

_ITEMS = b'"items":['
# The change of the depth by a byte: 1 by a bracket that opens, -1 by one that closes, as signed bytes.
_OPENS, _CLOSES = 0x01, 0xFF
_BLOCK_BYTES = 1024 * 1024
_QUOTE = ord('"')
_CHANGES = bytes(_OPENS if byte in b"[{" else _CLOSES if byte in b"]}" else 0 for byte in range(256))


class UnreadableError(ValueError):
    """A text is not JSON, or exceeds a bound; the error's text says which."""


def parse(data: bytes, max_bytes: int = MAX_OBJECT_BYTES) -> Any:
    """Parse one JSON value of at most `max_bytes` and `MAX_DEPTH` levels.

    Raises:
        UnreadableError: The text exceeds a bound, or is not JSON.

    Example:
        >>> parse(b"[" * 3000 + b"]" * 3000)
        Traceback (most recent call last):
        wattloop_operator.cluster.bounded_json.UnreadableError: it is nested more than 200 levels deep
    """
    if len(data) > max_bytes:
        raise UnreadableError(f"it has {len(data)} bytes, more than {max_bytes}")
    try:
        return pydantic_core.from_json(data)
    except ValueError as error:
        if "recursion limit" in str(error):
            raise UnreadableError(f"it is nested more than {MAX_DEPTH} levels deep") from None
        raise UnreadableError(f"it is not JSON ({error})") from None


def parse_response(data: bytes, part: Callable[[Any], Any] = lambda item: item) -> Any:
    """Parse the body of a response. In a list, an unreadable item is reduced to its upper levels.

    Args:
        data: The body.
        part: Returns what is kept of an item of a list, of which a long one is parsed item by item.

    Raises:
        UnreadableError: The text exceeds a bound, or is not JSON.
    """

    def of_text(text: bytes) -> Any:
        try:
            return part(parse(text))
        except UnreadableError:
            return part(upper_levels(text))

    return parse_list(data, part, of_text)


def parse_list(data: bytes, of_item: Callable[[Any], Any], of_text: Callable[[bytes], Any]) -> Any:
    """Parse the body of a response, and convert the items of a list.

    Args:
        data: The body.
        of_item: Converts an item of a list that is parsed whole; None: the item is left out.
        of_text: Converts the text of an item of a list that is long or unreadable; None: the item is left out.

    Raises:
        UnreadableError: The text exceeds a bound, or is not JSON.
    """
    if len(data) <= MAX_WHOLE_LIST_BYTES:
        try:
            found = parse(data)
        except UnreadableError:
            pass
        else:
            if not isinstance(found, dict) or not isinstance(found.get("items"), list):
                return found
            return found | {"items": _converted(found["items"], of_item)}
    listed = split_list(data)
    if listed is None:
        return parse(data)
    shell, items = listed
    return parse(shell) | {"items": _converted(items, of_text)}


def _converted(items: Iterable[Any], convert: Callable[[Any], Any]) -> list[Any]:
    return [each for item in items if (each := convert(item)) is not None]


def split_list(data: bytes) -> tuple[bytes, list[bytes]] | None:
    """A Kubernetes list with empty `items`, and each item; None if it is no list.

    Example:
        >>> split_list(b'{"items":[{"a":[1]},{}],"kind":"JobList"}')
        (b'{"items":[],"kind":"JobList"}', [b'{"a":[1]}', b'{}'])
    """
    start = data.find(_ITEMS) + len(_ITEMS)
    if start < len(_ITEMS) or sum(int(changes.sum()) for _, changes in _depth_changes(data[:start])) != 2:
        return None
    items: list[bytes] = []
    end = start
    for first, last in _deeper(data[start:], 0):
        if data[end : start + first].strip() not in (b"", b","):
            break
        items.append(data[start + first : start + last])
        end = start + last
    return data[:start] + data[end:], items


def upper_levels(data: bytes, levels: int = IDENTITY_LEVELS) -> Any:
    """Parse a text without the lists and objects below some levels: each is null.

    Raises:
        UnreadableError: The rest is too large, or not JSON.

    Example:
        >>> upper_levels(b'{"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": [[[]]]}', 2)
        {'metadata': {'name': 'x', 'labels': None}, 'spec': [None]}
    """
    kept, kept_until = [], 0
    for start, end in _deeper(data, levels):
        kept += [data[kept_until:start], b"null"]
        kept_until = end
    return parse(b"".join((*kept, data[kept_until:])), MAX_IDENTITY_BYTES)


def _deeper(data: bytes, levels: int) -> list[tuple[int, int]]:
    """Start and end of each list or object below some levels."""
    # Only a hostile or very large object needs it; an operator without one saves the memory.
    import numpy as np  # noqa: PLC0415

    edges: list[int] = []
    depth, is_deeper = 0, False
    for start, changes in _depth_changes(data):
        depths = np.cumsum(changes, dtype=np.int32) + depth
        deeper = depths > levels
        edges += (np.flatnonzero(np.diff(deeper, prepend=is_deeper)) + start).tolist()
        depth, is_deeper = int(depths[-1]), bool(deeper[-1])
    if is_deeper:
        edges.append(len(data))
    # The bracket that closes is on the level above.
    return [(start, end + 1) for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _depth_changes(data: bytes) -> Iterator[tuple[int, NDArray[np.int8]]]:
    """How each byte changes the depth, by blocks with their starts; bytes of strings do not.

    Blocks of arrays, since a list of the strings of 25 MB takes 1.5 GiB if they are empty.
    """
    import numpy as np  # noqa: PLC0415

    changes_of_bytes = np.frombuffer(_CHANGES, dtype=np.int8)
    text = data.replace(rb"\\", b"__").replace(rb"\"", b"__")
    in_string = 0
    for start in range(0, len(text), _BLOCK_BYTES):
        block = np.frombuffer(text, np.uint8, min(_BLOCK_BYTES, len(text) - start), start)
        # After an odd number of quotes a byte is in a string; the sum may overflow.
        strings = (np.cumsum(block == _QUOTE, dtype=np.uint8) + np.uint8(in_string)) & 1
        yield start, np.where(strings, np.int8(0), changes_of_bytes[block])
        in_string = int(strings[-1])
