"""What runs an attempt: a file a workload kind, and what every one of them is told."""
