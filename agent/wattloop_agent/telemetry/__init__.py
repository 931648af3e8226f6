"""What the agent tells about itself: logs and metrics."""
