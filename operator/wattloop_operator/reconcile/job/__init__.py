"""Decisions about a job: when it runs, what its status says, which history is kept."""
