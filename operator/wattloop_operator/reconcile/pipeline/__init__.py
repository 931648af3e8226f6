"""Decisions about a pipeline: from what its ranks report to what they run."""
