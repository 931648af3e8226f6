"""Policies that choose the batch size of each recurrence, behind one interface."""
