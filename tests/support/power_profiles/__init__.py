"""Trainings on paper and on simulated GPUs, whose energy and time at each power limit are known."""
