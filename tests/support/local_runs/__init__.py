"""`wattloop run` as a process."""
