"""What the rows of docs/coming-from.md name, run on small inputs."""
