"""What to do next, as a pure function: the state of one job and the time in, actions out.

The kopf operator, the local mode and the tests all drive `turn.next_turn`. Nothing here reads a clock, a cluster or a
database, and nothing depends on having seen an event: the same state gives the same actions, as often as it is asked.
"""
