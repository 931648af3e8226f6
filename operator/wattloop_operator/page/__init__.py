"""The live page: what the jobs do, what was learned and why, read-only, as HTML and as JSON."""
