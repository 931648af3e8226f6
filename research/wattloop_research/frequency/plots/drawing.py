"""Common parts of the figures: labels drawn as one artist, and saving as PNG and SVG."""

from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

DOTS_PER_INCH = 120


class Label(NamedTuple):
    """A text, centred at a position in the axes' coordinates, with its size in points."""

    place: tuple[float, float]
    text: str
    size: float
    colour: str


class Labels(Artist):
    """Labels clipped to the axes and excluded from the layout.

    One artist draws all labels, because one `Text` per label dominates the time of a figure.
    """

    def __init__(self, labels: Sequence[Label]) -> None:
        super().__init__()
        self._labels = labels
        self.set_in_layout(False)
        self.set_zorder(3)

    def draw(self, renderer: RendererBase) -> None:
        """Draw all labels."""
        axes, figure = self.axes, self.get_figure(root=True)
        if not self._labels or axes is None or figure is None:
            return
        places = axes.transData.transform([label.place for label in self._labels])
        height = figure.bbox.height if renderer.flipy() else 0.0
        fonts = {size: FontProperties(size=size) for size in {label.size for label in self._labels}}
        context = renderer.new_gc()
        context.set_clip_rectangle(axes.bbox)
        extents = {
            key: renderer.get_text_width_height_descent(key[0], fonts[key[1]], False)
            for key in {(label.text, label.size) for label in self._labels}
        }
        for label, (x, y) in zip(self._labels, places.tolist(), strict=True):
            width, tall, descent = extents[label.text, label.size]
            context.set_foreground(label.colour)
            left, base = x - width / 2, y - tall / 2 + descent
            renderer.draw_text(context, left, height - base if height else base, label.text, fonts[label.size], 0)
        context.restore()


def save_figure(figure: Figure, folder: Path, name: str) -> None:
    """Write ``name.png`` and ``name.svg``; equal figures give equal bytes."""
    write_png(figure, folder / f"{name}.png")
    # The layout of the first drawing is reused.
    figure.set_layout_engine("none")
    write_svg(figure, folder / f"{name}.svg", name)


def write_png(figure: Figure, target: Path | IO[bytes]) -> None:
    """Write the figure as PNG."""
    # `Figure.savefig` draws everything twice, the first time only to measure.
    figure.set_dpi(DOTS_PER_INCH)
    FigureCanvasAgg(figure).print_png(target, metadata={"Software": None})  # type: ignore[no-untyped-call]


def write_svg(figure: Figure, target: Path | IO[bytes], name: str) -> None:
    """Write the figure as SVG; the ids in it follow from the name."""
    with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        FigureCanvasSVG(figure).print_svg(target, metadata={"Date": None})  # type: ignore[no-untyped-call]
