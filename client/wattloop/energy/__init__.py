"""Estimates of a GPU's energy from readings of its counter and its power, for client and agent.

A GPU's energy counter advances every 20 to 100 ms, and a call to read it takes up to milliseconds, so the difference of
two readings is inaccurate for a short interval. The counter is exact at its edges, the moments at which it advances.

- `energy_timeline`: a counter that is read more often than it advances. The times of edges follow from all of them, and
  the shape of a step from its neighbours. Windows, iterations and instructions; errors are standard deviations.
- `energy_history`: a counter that is read rarely, and power in between. Accounts and pods; errors are bounds.
- `power_history`: the integral of power, for both.
"""
