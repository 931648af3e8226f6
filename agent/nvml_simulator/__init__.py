"""Simulated GPUs: a libnvidia-ml.so.1 in C that the real pynvml loads, and the Python way to build and steer it."""
