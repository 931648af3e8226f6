"""What the operator says of itself: logs, metrics, health."""
