"""Energy between two moments, from a counter that moves in steps: edges, interpolation, uncertainty.

A GPU's energy counter steps every 20 to 100 ms and a call of it takes up to milliseconds, so the difference of two
readings says little of a short window. What a sampler saw is enough: the counter is exact at its edges, and between
two edges energy is interpolated. One implementation, for the client and for the agent.
"""

from wattloop.energy.edges import CounterHistory, Edge, Reading
from wattloop.energy.integration import energy_of_power
from wattloop.energy.interpolation import Energy, energy_at, energy_between

__all__ = ["CounterHistory", "Edge", "Energy", "Reading", "energy_at", "energy_between", "energy_of_power"]
