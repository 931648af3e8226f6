"""GPU power: choosing a limit."""
