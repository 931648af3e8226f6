"""Shared parts of the plots: figures, colours by batch size, units, and saving."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wattloop.files.atomic_write import open_atomic_bytes
from wattloop.printable import printable
from wattloop_planner.bandit.configuration import Configuration

WIDTH_INCHES = 10.0
DOTS_PER_INCH = 144
# A longer one would leave no room for the axes.
MAX_LABEL_CHARACTERS = 48
INK = "#26323d"
FAINT = "#8a96a3"
SAVED = "#2f9e6e"
LOST = "#d1495b"
DASHES = (0, (5, 3))
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10.0,
    "text.color": INK,
    # A user's text with two dollar signs is no formula.
    "text.parse_math": False,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.titlesize": 12.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e8ec",
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.title_fontsize": 9.0,
    "legend.fontsize": 9.0,
}
Colour = tuple[float, float, float, float]


def colours_of(configurations: Iterable[Configuration]) -> dict[Configuration, Colour]:
    """A colour for each configuration, from dark for the smallest batch size to light for the largest."""
    ordered = sorted(set(configurations))
    # The lightest colours of the map are hardly visible on white.
    steps = max(len(ordered) - 1, 1) / 0.88
    return {configuration: colormaps["viridis"](number / steps) for number, configuration in enumerate(ordered)}


def label_of(text: object) -> str:
    """A printable label of what a user named, short enough for the legend."""
    return printable(str(text), MAX_LABEL_CHARACTERS)


def new_figure(height_inches: float) -> Figure:
    """A figure of the common width that needs no display and no global state."""
    return Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")


def save(figure: Figure, path: str | Path, footer: str = "") -> None:
    """Save a figure as PNG, atomically, with the same bytes for the same figure.

    Args:
        figure: The figure.
        path: The file.
        footer: A line below the figure; empty for none.

    Raises:
        OperationError: The file cannot be written.
    """
    if footer:
        figure.supxlabel(footer, x=0.01, ha="left", fontsize=9.0, color=LOST)
    with open_atomic_bytes(path) as stream:
        figure.savefig(stream, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})


def show_text(axes: Axes, text: str) -> None:
    """Show a sentence in axes without data."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", color=FAINT, transform=axes.transAxes, wrap=True)


def style() -> AbstractContextManager[None]:
    """Apply the common style until the block ends."""
    return rc_context(STYLE)
