"""Figures of frequency plans, as PNG and SVG."""
