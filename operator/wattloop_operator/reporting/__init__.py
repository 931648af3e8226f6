"""The reporting API: receives progress from training processes and energy from node agents."""
