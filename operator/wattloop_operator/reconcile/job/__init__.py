"""Decisions about a job: when it starts, its retries, its status, and its history limits."""
