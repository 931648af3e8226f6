"""Wattloop's client: what a training script imports, and the ground on which the other packages stand.

Nothing here needs more than the standard library, so that a training image takes on no dependency.

Example:
    >>> with Run(batch_size=64, max_epochs=1) as run:  # outside Wattloop: these defaults
    ...     for epoch in run.epochs():
    ...         run.report(metric=0.9)
"""

from wattloop.run import Run

__all__ = ["Run"]
