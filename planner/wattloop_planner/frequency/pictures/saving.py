"""Saving a figure as PNG and SVG."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write ``name.png`` and ``name.svg``; the same figure gives the same bytes."""
    FigureCanvasAgg(figure)
    figure.savefig(folder / f"{name}.png", dpi=120, metadata={"Software": None})
    # What the first drawing has laid out need not be laid out again.
    figure.set_layout_engine("none")
    with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
