"""Recurrences on measured traces: traces, jobs, the simulator that drives the policies."""
