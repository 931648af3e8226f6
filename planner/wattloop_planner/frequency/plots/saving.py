"""Saving a figure as PNG and SVG."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

DOTS_AN_INCH = 120


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write ``name.png`` and ``name.svg``; the same figure gives the same bytes."""
    # `Figure.savefig` draws everything twice for each format, once only to measure it.
    figure.set_dpi(DOTS_AN_INCH)
    FigureCanvasAgg(figure).print_png(folder / f"{name}.png", metadata={"Software": None})  # type: ignore[no-untyped-call]
    # What the first drawing has laid out need not be laid out again.
    figure.set_layout_engine("none")
    with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        FigureCanvasSVG(figure).print_svg(folder / f"{name}.svg", metadata={"Date": None})  # type: ignore[no-untyped-call]
