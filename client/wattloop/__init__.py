"""Wattloop's client: what a training script imports, and the ground on which the other packages stand.

Nothing here needs more than the standard library, so that a training image takes on no dependency.
"""
