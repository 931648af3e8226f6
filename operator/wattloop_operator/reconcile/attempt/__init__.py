"""Decisions about one attempt: its lifecycle, progress, early stop, outcome and late usage."""
