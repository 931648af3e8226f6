"""The plots of the page: those of `wattloop plot`, as SVG, each drawn once for what it shows."""

import threading
from enum import StrEnum

from cachetools import LRUCache

from wattloop_operator.domain.names import JobKey
from wattloop_operator.history.energy_origin import energy_note
from wattloop_operator.history.rows import rows_of
from wattloop_operator.page.job_source import JobSource, SourcedJob
from wattloop_operator.page.job_view import running_attempts
from wattloop_operator.plots.cost_plot import cost_svg
from wattloop_operator.plots.curve_plot import curve_of_running, curve_svg, latest_curve
from wattloop_operator.plots.figure_style import DARK, LIGHT
from wattloop_operator.plots.tradeoff import tradeoff_points, tradeoff_svg

# A plot takes up to half a megabyte.
MAX_PLOTS_KEPT = 32


class Plot(StrEnum):
    """What a plot shows."""

    COST = "cost"
    TRADEOFF = "tradeoff"
    CURVE = "curve"


class ThemeName(StrEnum):
    """The colours of a plot."""

    LIGHT = "light"
    DARK = "dark"


class SvgPlots:
    """Draws plots and keeps the latest ones. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: LRUCache[tuple[Plot, ThemeName, JobKey, str], bytes] = LRUCache(MAX_PLOTS_KEPT)

    def svg(self, source: JobSource, plot: Plot, key: JobKey, theme: ThemeName) -> bytes | None:
        """A plot of a job; None if the source has none of this name.

        One that was drawn for another source is the same: the versions name the job's uid and all that is drawn.
        """
        version, job = source.version(), source.job(key)
        if job is None:
            return None
        # A running attempt changes its curve without a change of the history.
        kept = plot, theme, key, version if plot is Plot.CURVE else job.version
        with self._lock:
            if kept in self._kept:
                return self._kept[kept]
        drawn = _drawn(plot, job, theme)
        with self._lock:
            self._kept[kept] = drawn
        return drawn


def _drawn(plot: Plot, job: SourcedJob, name: ThemeName) -> bytes:
    theme, history = DARK if name is ThemeName.DARK else LIGHT, job.history
    if plot is Plot.COST:
        return cost_svg(history, theme)
    if plot is Plot.TRADEOFF:
        note = energy_note([row.energy_origin for row in rows_of(history)])
        points = tradeoff_points(history) if history.records else ()
        return tradeoff_svg(history.title, points, history.units, theme, note)
    running = running_attempts(job)
    return curve_svg(history.title, curve_of_running(running[0], history) if running else latest_curve(history), theme)
