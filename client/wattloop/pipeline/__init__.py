"""Pipeline-parallel training under a frequency plan: instructions, their clocks, and their measurement."""
