"""Experiments with frequency plans: their files, baselines, emulation, evaluation and pictures."""
