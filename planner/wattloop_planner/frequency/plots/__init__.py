"""Pictures of frequency plans, as PNG and SVG."""

from wattloop_planner.frequency.plots.frontier import draw_frontier
from wattloop_planner.frequency.plots.pipeline import draw_plans

__all__ = ["draw_frontier", "draw_plans"]
