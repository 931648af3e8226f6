"""A pipeline to plan: schedules, graphs of operations, measured options, and what a plan takes."""
