"""Decides what to do next, as pure functions: from the state of one job and the time to actions.

The driver calls `next_actions.next_actions` for the operator, the local mode and the tests. Nothing here reads a clock,
a cluster or a database, and nothing depends on past events: the same state always gives the same actions.
"""
