"""Figures of frequency plans, as PNG and SVG."""

from wattloop_planner.frequency.plots.frontier_figure import draw_frontier
from wattloop_planner.frequency.plots.iteration import draw_plans, plans_to_draw

__all__ = ["draw_frontier", "draw_plans", "plans_to_draw"]
