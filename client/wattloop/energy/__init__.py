"""Energy between two moments from a counter that advances in steps: edges, interpolation, uncertainty.

A GPU's energy counter advances every 20 to 100 ms and a call to read it takes up to milliseconds, so
the difference of two readings is inaccurate for a short window. The counter is exact at its edges, the
moments at which it advances. This package finds the edges in a series of readings and interpolates
between them. The client and the agent share it.
"""

from wattloop.energy.edges import CounterHistory, Edge, Reading
from wattloop.energy.interpolation import Energy, energy_at, energy_between, energy_of_power

__all__ = ["CounterHistory", "Edge", "Energy", "Reading", "energy_at", "energy_between", "energy_of_power"]
