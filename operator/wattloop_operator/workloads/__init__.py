"""Workloads that run attempts: a module for each kind, and the additions to their pods."""
