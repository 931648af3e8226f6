"""Real agents on simulated GPUs, and what tests of them share."""
