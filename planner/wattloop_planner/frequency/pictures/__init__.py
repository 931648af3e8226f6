"""Pictures of frequency plans, as PNG and SVG."""

from wattloop_planner.frequency.pictures.frontier import draw_frontier
from wattloop_planner.frequency.pictures.pipeline import draw_plans

__all__ = ["draw_frontier", "draw_plans"]
