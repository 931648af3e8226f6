"""Workloads that run attempts: a module for each kind, and the additions that the pods of every kind get."""
