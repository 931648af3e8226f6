"""A cache of functions of long tuples, bounded by the number of their items.

`functools.lru_cache` bounds the number of entries, and a sender decides how long each one is.
"""

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Concatenate, ParamSpec, TypeVar

Result = TypeVar("Result")
Rest = ParamSpec("Rest")
Items = tuple[str, ...]


def cached_by_items(
    max_items: int,
) -> Callable[[Callable[Concatenate[Items, Rest], Result]], Callable[Concatenate[Items, Rest], Result]]:
    """Cache a function of a tuple of strings, and of further hashable arguments by position. Thread-safe.

    An error is not cached.

    Args:
        max_items: The tuples of all entries together have at most this many items; the least recently
            used ones are dropped.

    Example:
        >>> @cached_by_items(max_items=3)
        ... def joined(items):
        ...     print("joins", *items)
        ...     return "".join(items)
        >>> joined(("a", "b")), joined(("a", "b"))
        joins a b
        ('ab', 'ab')
        >>> joined(("c", "d")), joined(("a", "b"))
        joins c d
        joins a b
        ('cd', 'ab')
    """

    def decorate(function: Callable[Concatenate[Items, Rest], Result]) -> Callable[Concatenate[Items, Rest], Result]:
        known: OrderedDict[Hashable, tuple[int, Result]] = OrderedDict()
        lock = threading.Lock()
        total = 0

        def cached(items: Items, /, *arguments: Rest.args, **named: Rest.kwargs) -> Result:
            nonlocal total
            key = (items, *arguments)
            with lock:
                if key in known:
                    known.move_to_end(key)
                    return known[key][1]
            result = function(items, *arguments, **named)
            with lock:
                # An empty tuple counts too.
                if key not in known and len(items) < max_items:
                    known[key] = (len(items) + 1, result)
                    total += len(items) + 1
                while total > max_items:
                    total -= known.popitem(last=False)[1][0]
            return result

        functools.update_wrapper(cached, function)
        return cached

    return decorate
