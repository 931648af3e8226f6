"""Shared parts of the plots: figures, themes, colours by batch size, and saving as PNG or SVG."""

import contextlib
import io
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font

from wattloop.files.atomic_write import open_atomic_bytes
from wattloop.printable import printable
from wattloop_planner.bandit.configuration import Configuration

WIDTH_INCHES = 10.0
DOTS_PER_INCH = 144
# A longer one would leave no room for the axes.
MAX_LABEL_CHARACTERS = 48
# Of more recurrences, every n-th is drawn: bars of less than a pixel show nothing.
MAX_DRAWN = 400
DASHES = (0, (5, 3))
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10.0,
    # A user's text with two dollar signs is no formula.
    "text.parse_math": False,
    "axes.titlesize": 12.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.title_fontsize": 9.0,
    "legend.fontsize": 9.0,
    # An SVG has the same bytes each time.
    "svg.hashsalt": "wattloop",
}
Colour = tuple[float, float, float, float]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Theme:
    """The colours of a figure.

    Attributes:
        ink: Text, axes' labels and the main lines.
        faint: Secondary lines and areas.
        grid: Lines of the grid.
        paper: The background.
        saved: What was saved.
        lost: What was lost, and warnings.
        shades: Part of the colour map that is legible on the background.
    """

    ink: str
    faint: str
    grid: str
    paper: str
    saved: str
    lost: str
    shades: tuple[float, float]


LIGHT = Theme("#26323d", "#8a96a3", "#e4e8ec", "#ffffff", "#2f9e6e", "#d1495b", (0.0, 0.88))
DARK = Theme("#e3e8ec", "#7f8c98", "#323c45", "#1a2026", "#4cc38a", "#f2788a", (0.28, 1.0))
# Matplotlib has one set of settings for the whole process.
_SETTINGS = threading.RLock()


def colours_of(configurations: Iterable[Configuration], theme: Theme = LIGHT) -> dict[Configuration, Colour]:
    """A colour for each configuration, from dark for the smallest batch size to light for the largest."""
    ordered = sorted(set(configurations))
    first, last = theme.shades
    step = (last - first) / max(len(ordered) - 1, 1)
    return {configuration: colormaps["viridis"](first + number * step) for number, configuration in enumerate(ordered)}


def thinned(items: Sequence[Item]) -> tuple[Sequence[Item], int]:
    """At most `MAX_DRAWN` of the items, the latest among them, and n of "every n-th is drawn".

    Example:
        >>> thinned(range(3)), thinned(range(1_000))[1]
        ((range(0, 3), 1), 3)
    """
    step = -(-len(items) // MAX_DRAWN) or 1
    return (items if step == 1 else items[(len(items) - 1) % step :: step]), step


def label_of(text: object) -> str:
    """A printable label of what a user named, short enough for the legend; what the font lacks is escaped."""
    known = get_font(findfont(STYLE["font.family"])).get_char_index
    shown = printable(str(text), MAX_LABEL_CHARACTERS)
    return "".join(each if known(ord(each)) else each.encode("unicode_escape").decode() for each in shown)


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
    _add_footer(figure, footer, LIGHT)
    with open_atomic_bytes(path) as stream:
        figure.savefig(stream, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})


def svg_of(figure: Figure, theme: Theme, footer: str = "") -> bytes:
    """The figure as SVG, with its text as outlines, so that it needs no font and no text of a user is markup."""
    _add_footer(figure, footer, theme)
    stream = io.BytesIO()
    metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(stream, format="svg", metadata=metadata)
    return stream.getvalue()


def _add_footer(figure: Figure, footer: str, theme: Theme) -> None:
    if footer:
        figure.supxlabel(footer, x=0.01, ha="left", fontsize=9.0, color=theme.lost)


def show_text(axes: Axes, text: str, theme: Theme = LIGHT) -> None:
    """Show a sentence in axes without data."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", color=theme.faint, transform=axes.transAxes, wrap=True)


@contextlib.contextmanager
def style(theme: Theme = LIGHT) -> Iterator[None]:
    """Apply the common style until the block ends; one thread at a time."""
    inks = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")
    papers = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    colours: dict[Any, Any] = {
        **dict.fromkeys(inks, theme.ink),
        **dict.fromkeys(papers, theme.paper),
        "axes.edgecolor": theme.faint,
        "grid.color": theme.grid,
    }
    with _SETTINGS, rc_context({**STYLE, **colours}):
        yield
