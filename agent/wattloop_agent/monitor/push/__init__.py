"""Pushes the node's cumulative energy to the operator; a lost or repeated report changes nothing."""
