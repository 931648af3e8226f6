"""What to do next, as a pure function: the state of one job and the time in, actions out.

The kopf operator, the local mode and the tests all call `reconcile.next_actions`. Nothing here reads a clock, a cluster
or a database, and nothing depends on having seen an event: the same state always gives the same actions.
"""
