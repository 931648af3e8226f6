"""Energy, time and cost of an attempt, from the reports of its processes and of the node agents."""
