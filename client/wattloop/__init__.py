"""Wattloop's client: what a training script imports, and the ground on which the other packages stand.

Nothing here needs more than the standard library, so that a training image takes on no dependency.

Example:
    >>> from wattloop import Run
    >>> with Run(batch_size=64, max_epochs=1) as run:  # outside Wattloop: these defaults
    ...     for epoch in run.epochs():
    ...         run.report(metric=0.9)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wattloop.run import Run

__all__ = ["Run"]


def __getattr__(name: str) -> object:
    # Loaded when first used: what stands on the client (the privileged power controller above all) needs no
    # HTTP client with it.
    if name == "Run":
        from wattloop.run import Run  # noqa: PLC0415

        return Run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
