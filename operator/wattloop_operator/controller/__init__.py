"""What happens when something changes: kopf's handlers, which only parse and call, and the scheduler of turns."""
