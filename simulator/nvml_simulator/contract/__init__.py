"""NVML's documentation as a table: parameters of each function, and codes for invalid arguments.

The tests check the simulated library against this table. ``python -m nvml_simulator.contract``
checks the ``libnvidia-ml.so.1`` that the process loads, so that the table can be verified on a
machine with a real GPU; it changes no setting.
"""

from __future__ import annotations

from nvml_simulator.contract.conformance import FunctionCaller, differences
from nvml_simulator.contract.function_parameters import (
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    SUCCESS,
    UNINITIALIZED,
    Device,
    Function,
    MigDeviceHandle,
)
from nvml_simulator.contract.functions import ALLOWED_UNINITIALIZED, FUNCTIONS
from nvml_simulator.contract.invalid_calls import InvalidCall, invalid_calls

__all__ = [
    "ALLOWED_UNINITIALIZED",
    "FUNCTIONS",
    "INVALID_ARGUMENT",
    "NOT_SUPPORTED",
    "SUCCESS",
    "UNINITIALIZED",
    "Device",
    "Function",
    "FunctionCaller",
    "InvalidCall",
    "MigDeviceHandle",
    "differences",
    "invalid_calls",
]
