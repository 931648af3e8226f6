"""Pushes cumulative energy to the operator, so that a lost or repeated report changes nothing."""
