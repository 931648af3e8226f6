"""Common style of the figures, and saving without a display."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattloop.files.atomic_write import open_atomic_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "grid.color": "#e4e8ec",
    "legend.frameon": False,
}
CHOSEN = "#d1495b"
POSTERIOR = "#30638e"
OBSERVED = "#26323d"


@contextmanager
def saved_figure(path: str | Path, width_inches: float, height_inches: float) -> Iterator[Figure]:
    """Yield a figure; save it atomically as a PNG if the block ends without an exception.

    Raises:
        OperationError: The file cannot be written.
    """
    # Deferred, because the import takes half a second and most commands draw nothing.
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(STYLE):
        figure = Figure(figsize=(width_inches, height_inches), layout="constrained")
        yield figure
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=144)
    with open_atomic_bytes(path) as stream:
        stream.write(content.getvalue())
