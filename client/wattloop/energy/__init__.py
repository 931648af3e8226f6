"""Energy of a GPU over time, from a counter that advances in steps and from readings of power.

A GPU's energy counter advances every 20 to 100 ms and a call to read it takes up to milliseconds, so
the difference of two readings is inaccurate for a short window. The counter is exact at its edges, the
moments at which it advances. A client's windows are estimated by `wattloop.energy.energy_timeline`; the agent's
account interpolates between the edges that it keeps.
"""

from wattloop.energy.edges import Edge
from wattloop.energy.energy_between import energy_at

__all__ = ["Edge", "energy_at"]
