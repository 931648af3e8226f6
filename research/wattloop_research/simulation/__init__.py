"""Simulation of recurring jobs on measured traces."""
