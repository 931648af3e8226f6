"""Decisions about one attempt: from its start over its reports to its outcome, usage and cost."""
