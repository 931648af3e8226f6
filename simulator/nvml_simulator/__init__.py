"""Simulated GPUs: a libnvidia-ml.so.1 in C that the real pynvml loads, and its control in Python.

Example:
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     state = create(pathlib.Path(folder) / "gpus", model="A100", count=1, clock="virtual")
    ...     with Machine(state) as gpus:
    ...         seconds = gpus.occupy(0, work=312.0, intensity=0.5)
    ...         joules = gpus.describe().gpus[0].energy_microjoules / 1e6
    >>> round(seconds, 3), round(joules, 1)
    (1.0, 281.6)
"""

from nvml_simulator.compilation import build_library
from nvml_simulator.description import ClockSetting, Description, MigDevice, SimulatedGpu, WorkRecord, device_plugin_ids
from nvml_simulator.models import Model, ThermalModel, busy_power_and_throughput, model_named, models
from nvml_simulator.simulated_library import load
from nvml_simulator.simulated_machine import Machine, clock_seconds, describe, machine, occupy
from nvml_simulator.state_files import STATE_VARIABLE, create, environment

__all__ = [
    "STATE_VARIABLE",
    "ClockSetting",
    "Description",
    "Machine",
    "MigDevice",
    "Model",
    "SimulatedGpu",
    "ThermalModel",
    "WorkRecord",
    "build_library",
    "busy_power_and_throughput",
    "clock_seconds",
    "create",
    "describe",
    "device_plugin_ids",
    "environment",
    "load",
    "machine",
    "model_named",
    "models",
    "occupy",
]
