"""Windows: the energy of parts of a program. See `EnergyMonitor`.

One thread of the process samples the GPUs, by the agent's stream or by NVML, into a timeline for each GPU. A window
is two moments. Its energy is looked up in the timelines when it is first read.
"""

from wattloop.energy_monitor.energy_monitor import EnergyMonitor, Window
from wattloop.energy_monitor.measurement import Measurement

__all__ = ["EnergyMonitor", "Measurement", "Window"]
